"""`vicinal calibration check`: its sentence, its exit status, and what it needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.service.types import Calibrate
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
