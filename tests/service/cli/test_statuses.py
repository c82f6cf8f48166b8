"""Exit statuses: 0 where nothing was found, 1 where a person has to look at something, 2 after an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.service.types import Calibrate, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.cli import main
from vicinal.service.measuring.drift import DriftState


def test_what_cannot_be_read_shows_for_as_long_as_it_cannot(run: Run, catalog: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(catalog, tmp_path / "photos")
    (photos / "no.png").write_bytes(b"words")
    for as_json in ((), ("--json",)):
        run("index", photos, "-g", "shop", *as_json, status=1)
    (photos / "no.png").unlink()
    run("index", photos, "-g", "shop")


@pytest.mark.parametrize(("level", "status"), [("unknown", 0), ("moderate", 0), ("strong", 1)])
def test_strong_drift_shows(
    run: Run, gallery: Gallery, calibrate: Calibrate, monkeypatch: pytest.MonkeyPatch, level: str, status: int
) -> None:
    found = DriftState.model_construct(calibration=calibrate(gallery), since=None, level=level)
    monkeypatch.setattr("vicinal.service.measuring.drift.read_drift", lambda *_: found)
    run("calibration", "drift", "-g", "shoes", "--json", status=status)


def test_an_error_that_nobody_expected_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setitem(main.__globals__, "app", fail)
    with pytest.raises(SystemExit, match="2"):
        main()
