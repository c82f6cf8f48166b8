"""`vicinal calibration check`: its sentence, its exit status, and what it needs."""

from __future__ import annotations

import shutil
from pathlib import Path

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


def test_an_unknown_calibration_is_an_error_before_photos_are_read(
    fail: Fail, record_id: str, tmp_path: Path
) -> None:
    queries = ("--queries", tmp_path / "nowhere")
    line = fail("calibration", "check", "-g", "shoes", *queries, "--calibration", "unknown")
    assert ("unknown" in line, "nowhere" in line) == (True, False)
