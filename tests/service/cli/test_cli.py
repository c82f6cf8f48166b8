"""Command line: what it prints, and that every error is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.service.types import Fail, Run, View
from vicinal.models.bundle import ModelBundle

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.usefixtures("cli_environment")


def as_process(arguments: Sequence[object]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "vicinal", *(str(one) for one in arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.fixture
def query(tmp_path: Path, view: View) -> Path:
    """A new view of the label `plain`."""
    view(6, 9).save(tmp_path / "query.png")
    return tmp_path / "query.png"


def test_search_as_json_is_the_answer(run: Run, data_dir: Path, query: Path) -> None:
    arguments = ("search", query, "-g", "shoes", "--threshold", 0.5, "--candidates", "--limit", 3, "--json")
    answer = json.loads(run(*arguments).stdout)
    assert answer["no_match"] is False
    assert answer["matches"][0]["label"] == "plain"
    assert len(answer["candidates"]) == 3


def test_gallery_show_holds_versions_report_and_calibrations(run: Run, data_dir: Path) -> None:
    run("calibrate", "-g", "shoes")
    shown = json.loads(run("gallery", "show", "shoes", "--json").stdout)
    assert (shown["n_items"], len(shown["versions"]), len(shown["calibrations"])) == (60, 1, 1)
    assert shown["report"]["n_items"] == 60
    assert shown["searches"] == "nearest neighbors, one threshold"


def test_a_gallery_is_deleted_only_on_confirmation(run: Run, fail: Fail, data_dir: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.confirm", lambda _question: False)
        assert "nothing was deleted" in fail("gallery", "delete", "shoes")
    run("gallery", "delete", "shoes", "--yes")
    assert json.loads(run("gallery", "list", "--json").stdout) == []


ERRORS = {
    "unknown gallery": (["search", "query.png", "-g", "boots"], "no gallery 'boots'"),
    "bad gallery name": (["index", ".", "-g", "Shoes!"], "is no gallery name"),
    "missing source": (["index", "nowhere", "-g", "new"], "there is no source 'nowhere'"),
    "empty source": (["index", "data", "-g", "new"], "holds no images"),
    "source of another kind": (["index", "words.txt", "-g", "new"], "neither a folder nor"),
    "bad target": (["calibrate", "-g", "shoes", "--target", "far=lots"], "'far=lots' is no target"),
    "unreachable target": (["calibrate", "-g", "shoes", "--target", "far=1e-7"], "needs at least"),
    "missing bundle": (["search", "query.png", "-g", "shoes", "--bundle", "nowhere"], "is no model bundle"),
    "missing image": (["search", "nowhere.png", "-g", "shoes"], "nowhere.png"),
    "threshold out of range": (["search", "query.png", "-g", "shoes", "--threshold", "2"], "equal to 1"),
    "unknown version": (["gallery", "activate", "shoes", "999"], "999"),
    "bad index": (["index", ".", "-g", "new", "--index", "Nonsense"], "'Nonsense'"),
    "queries without labels": (["calibrate", "-g", "shoes", "--queries", "."], "have no label"),
    "exposed server": (["serve", "--host", "0.0.0.0"], "loopback only"),
}


@pytest.mark.parametrize(("arguments", "reason"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_one_line(
    fail: Fail, data_dir: Path, query: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    (tmp_path / "words.txt").write_text("words", encoding="utf-8")
    assert reason in fail(*arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "many"),
        ("API_KEYS", "{not json"),
        ("API_KEYS", '{"key": ["fly"]}'),
        ("PIPELINE__RERANK__K", "1"),
    ],
)
def test_a_wrong_variable_is_one_line(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"VICINAL_{name}", value)
    assert name.partition("__")[0].lower() in fail("gallery", "list").lower()


def test_a_network_that_does_not_run_is_one_line(
    fail: Fail, query: Path, tiny_bundle: ModelBundle, tmp_path: Path
) -> None:
    """The checksum fits; ONNX Runtime refuses it in several lines."""
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "backbone.onnx").write_bytes(b"no network")
    ModelBundle.write(bundle, tiny_bundle.manifest.model_dump(exclude={"files"}))
    assert "backbone.onnx" in fail("index", ".", "-g", "new", "--bundle", bundle)


@pytest.mark.slow
def test_as_a_process_an_error_is_one_line_on_standard_error() -> None:
    done = as_process(["search", "a.png", "-g", "boots"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("vicinal: there is no gallery 'boots'")
    assert done.stderr.count("\n") == 1


def test_help_names_every_command(run: Run) -> None:
    output = run("--help").stdout
    commands = ("demo", "index", "search", "calibrate", "evaluate", "serve", "train", "export", "gallery")
    assert [command for command in commands if command not in output] == []
