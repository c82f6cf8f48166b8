"""Modules of the page that need no browser, tried by node: each `test_*.mjs` beside this file is one test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import program

FOLDER = Path(__file__).resolve().parent
STATIC = FOLDER.parents[2] / "service" / "static"


def run_script(script: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a script beside a copy of the page, whose files node takes for modules there."""
    place.mkdir(exist_ok=True)
    shutil.copytree(STATIC, place / "static")
    (place / "package.json").write_text('{"type": "module"}')
    shutil.copy(script, place)
    command = [program("node"), script.name]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", sorted(one.name for one in FOLDER.glob("test_*.mjs")))
def test_script(name: str, tmp_path: Path) -> None:
    done = run_script(FOLDER / name, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_script_that_is_wrong_fails(tmp_path: Path) -> None:
    """Negative control."""
    wrong = tmp_path / "wrong.mjs"
    wrong.write_text('import assert from "node:assert/strict";\nassert.equal(1, 2);\n')
    assert run_script(wrong, tmp_path / "place").returncode != 0
