"""`vicinal calibration check`: its sentence, its exit status, and what it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.service.types import Calibrate, Fail, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.service.cli import app


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


@pytest.fixture
def photos(catalog: Path, view: View, tmp_path: Path) -> Path:
    """New views of every label of the gallery, and of two that it lacks."""
    folder = tmp_path / "new photos"
    names = [*(path.name for path in catalog.iterdir()), "absent", "gone"]
    for label in names:
        (folder / label).mkdir(parents=True)
    for path in catalog.iterdir():
        shutil.copy(path / "view 1.png", folder / path.name / "view.png")
    for number, label in ((30, "absent"), (31, "gone")):
        for look in range(2):
            view(number, look).save(folder / label / f"view {look}.png")
    return folder


@pytest.fixture
def mislabelled(catalog: Path, tmp_path: Path) -> Path:
    """Photos of the gallery under names that it does not have: each gets an answer that it should not."""
    folder = tmp_path / "mislabelled"
    for path in catalog.iterdir():
        shutil.copytree(path, folder / f"not {path.name}")
    return folder


def outcome(*arguments: object) -> Result:
    given = [str(one) for one in ("calibration", "check", "-g", "shoes", *arguments)]
    return CliRunner().invoke(app, given, catch_exceptions=False)


def test_the_first_line_says_whether_the_promise_holds(run: Run, record_id: str, photos: Path) -> None:
    first = run("calibration", "check", "-g", "shoes", "--queries", photos).stdout.splitlines()[0]
    assert "of 10 photos of things you have (10 labels), 10 were found; promised were" in first
    assert "of 4 photos of things you do not have (2 labels), 0 got an answer" in first


def test_a_broken_promise_says_what_to_do_and_exits_with_1(
    cli_environment: None, record_id: str, mislabelled: Path
) -> None:
    result = outcome("--queries", mislabelled)
    first = result.stdout.splitlines()[0]
    assert (result.exit_code, first.startswith("What was promised does NOT hold: ")) == (1, True)
    assert first.endswith(f"vicinal calibrate --queries {mislabelled} -g shoes")


def test_json_holds_everything_and_details_only_what_stands_behind(
    run: Run, record_id: str, photos: Path
) -> None:
    arguments = ("calibration", "check", "-g", "shoes", "--queries", photos)
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    assert (found["calibration"], set(found["rates"])) == (record_id, {"fnir", "fpir"})
    plain, details = run(*arguments).stdout, run(*arguments, "--details").stdout
    assert ("probability" in plain, "probability" in details) == (False, True)
    assert found["sentence"] in plain
    shown = run("calibration", "show", record_id, "-g", "shoes").stdout
    assert found["sentence"] in shown


def test_a_broken_promise_is_json_alone_with_the_same_exit_status(
    cli_environment: None, record_id: str, mislabelled: Path
) -> None:
    """Whoever reads the answer by a program finds the photos that were left out on the other channel."""
    (mislabelled / "not plain" / "torn.png").write_bytes(b"no picture")
    result = outcome("--queries", mislabelled, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["n_queries"]) == (1, "broken", 60)
    assert "left out" in result.stderr
    assert "torn.png" in result.stderr


def test_an_unknown_calibration_is_an_error_before_photos_are_read(
    fail: Fail, record_id: str, tmp_path: Path
) -> None:
    queries = ("--queries", tmp_path / "nowhere")
    line = fail("calibration", "check", "-g", "shoes", *queries, "--calibration", "unknown")
    assert ("unknown" in line, "nowhere" in line) == (True, False)


def test_nothing_in_force_is_no_promise(fail: Fail, data_dir: Path, photos: Path) -> None:
    line = fail("calibration", "check", "-g", "shoes", "--queries", photos)
    assert ("no calibration in force" in line, "vicinal calibrate -g shoes" in line) == (True, True)


def test_the_exit_status_is_in_the_help(cli_environment: None) -> None:
    text = " ".join(CliRunner().invoke(app, ["calibration", "check", "--help"]).stdout.split())
    assert "1 if it is broken" in text
