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
def mislabelled(catalog: Path, tmp_path: Path) -> Path:
    """Photos of the gallery under names that it does not have: each gets an answer that it should not."""
    folder = tmp_path / "mislabelled"
    for path in catalog.iterdir():
        shutil.copytree(path, folder / f"not {path.name}")
    return folder


def outcome(*arguments: object) -> Result:
    given = [str(one) for one in ("calibration", "check", "-g", "shoes", *arguments)]
    return CliRunner().invoke(app, given, catch_exceptions=False)


def test_a_broken_promise_says_what_to_do_and_exits_with_1(
    cli_environment: None, record_id: str, mislabelled: Path
) -> None:
    result = outcome("--queries", mislabelled)
    first = result.stdout.splitlines()[0]
    assert (result.exit_code, first.startswith("What was promised does NOT hold: ")) == (1, True)
    assert first.endswith(f"vicinal calibrate --queries {mislabelled} -g shoes")


def test_strangers_need_no_folder_each(
    run: Run, fail: Fail, record_id: str, view: View, tmp_path: Path
) -> None:
    (folder := tmp_path / "strangers").mkdir()
    for number in range(4):
        view(30 + number, 0).save(folder / f"{number}.png")
    given = ("calibration", "check", "-g", "shoes", "--absent", folder)
    assert "of 4 photos of things you do not have (4 labels), 0 got an answer" in run(*given).stdout
    assert "name one of them" in fail(*given, "--queries", folder)
