"""`vicinal` itself: its version, its help, and what a shell can complete."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.service.types import Run
from vicinal.service.cli import app

ROOT = Path(__file__).resolve().parents[3]

HEAVY = {"faiss", "fastapi", "httpx", "lance", "numpy", "onnxruntime", "PIL", "pyarrow", "sklearn", "torch"}
AS_COMMAND = """
def run(words):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
"""
COMPLETE = """
eval "$(_VICINAL_COMPLETE=source_bash vicinal)"
COMP_WORDS=({words})
COMP_CWORD={last}
_vicinal_completion vicinal
echo "${{COMPREPLY[*]}}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which a shell finds `vicinal`."""
    command = tmp_path / "vicinal"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vicinal "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }


def in_bash(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    return done.stdout.strip()


def completed(words: str, environment: dict[str, str]) -> list[str]:
    """What bash would offer for the last word of a line."""
    script = COMPLETE.format(words=words, last=len(words.split()) - 1)
    return in_bash(script, environment).split()


def test_the_version_is_one_line(run: Run) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert run("--version").stdout == f"vicinal {project['version']}\n"


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("plan --items 1000", "docs/SCALE.md"),
        ("explain a.jpg", "'Why?'"),
        ("compare --pictures a", "flip"),
        ("review --terminal", "--answer"),
        ("evaluate --opis-c 2", "OPIS is that of"),
    ],
)
def test_a_command_or_an_option_that_went_says_what_to_do_instead(words: str, instead: str) -> None:
    found = CliRunner().invoke(app, words.split())
    assert (found.exit_code, instead in found.output) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vicinal gal", ["gallery"]),
        ("vicinal gallery ver", ["versions"]),
        ("vicinal search --thr", ["--threshold"]),
        ("vicinal nosuch", []),
    ],
)
def test_bash_completes_commands_and_options(
    words: str, expected: list[str], environment: dict[str, str]
) -> None:
    assert completed(words, environment) == expected


def loaded_after(lines: str) -> set[str]:
    """Heavy packages that a new process has loaded after some calls of commands."""
    code = f"from vicinal.service.cli import app\nfrom typer.testing import CliRunner\n{AS_COMMAND}{lines}"
    code += "import sys\nprint(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "VICINAL_DATA_DIR": "nowhere"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()} & HEAVY


def commands_of(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words; a group is none."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, (*before, name))
        else:
            yield (*before, name), command


@pytest.mark.slow
def test_help_loads_nothing_that_a_run_needs() -> None:
    """Of the page of every command: what it needs to run is imported when it runs."""
    commands = [words for words, _ in commands_of(get_command(app))]
    assert {("search",), ("gallery", "versions"), ("train",)} < set(commands)
    commands += [(), ("gallery",), ("calibration",)]
    calls = "".join(f"run({[*words, '--help']})\n" for words in commands)
    assert loaded_after(calls + "run(['--version'])\n") == set()


@pytest.mark.slow
def test_a_command_that_runs_loads_what_it_needs() -> None:
    """Negative control."""
    assert {"numpy", "pyarrow"} <= loaded_after("run(['gallery', 'list'])\n")


def test_a_gallery_is_named_in_one_way() -> None:
    """By `-g`, but where the command's subject is a gallery: there by its first argument."""
    for words, command in commands_of(get_command(app)):
        first = [one.name for one in command.params if one.param_type_name == "argument"][:1]
        options = [one.opts for one in command.params if "gallery" in one.name or "-g" in one.opts]
        if words[0] == "gallery":
            assert (first, options) == ([] if words[1] == "list" else ["name"], []), words
        else:
            assert "name" not in first, words
            assert options in ([], [["--gallery", "-g"]]), words


@pytest.mark.parametrize(
    "words",
    [
        (b"gallery", b"list", b"--data-dir", b"caf\xe9"),
        (b"index", b"photos", b"-g", b"new", b"--data-dir", b"caf\xe9/data"),
        (b"index", b"caf\xe9", b"-g", b"new"),
        (b"index", b"caf\xe9.csv", b"-g", b"new"),
        (b"index", b"caf\xe9.npz", b"-g", b"new", b"--space", b"a"),
        (b"gallery", b"add", b"shoes", b"photos", b"--prefix", b"a", b"--label", b"caf\xe9"),
        (b"gallery", b"remove", b"shoes", b"caf\xe9"),
        (b"gallery", b"show", b"caf\xe9"),
        (b"calibrate", b"-g", b"shoes", b"--queries", b"caf\xe9"),
    ],
)
def test_a_word_that_is_not_utf8_is_one_line(
    words: tuple[bytes, ...], data_dir: Path, catalog: Path, tmp_path: Path, fail: Callable[..., str]
) -> None:
    (tmp_path / "photos").symlink_to(catalog / "plain")
    for name in (b"caf\xe9/", b"caf\xe9/data/"):
        Path(os.fsdecode(name)).mkdir(exist_ok=True)
    for name in (b"caf\xe9.csv", b"caf\xe9.npz"):
        Path(os.fsdecode(name)).write_text("path\n1.png\n")
    assert "caf\\xe9" in fail(*map(os.fsdecode, words))
