"""Exit statuses: 0 where nothing was found, 1 where a person has to look at something, 2 after an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.types import Calibrate, Encode, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.service.cli import main
from vicinal.service.measuring.drift import DriftState


@pytest.fixture
def photos(tmp_path: Path, view: View, encode: Encode) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.png").write_bytes(encode(view(number, 0)))
    return folder


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_what_cannot_be_read_shows_in_the_status_for_as_long_as_it_cannot(
    run: Run, photos: Path, as_json: tuple[str, ...]
) -> None:
    run("index", photos, "-g", "shop", *as_json)
    (photos / "4.png").write_bytes(b"no image")
    for _ in range(2):
        run("index", photos, "-g", "shop", *as_json, status=1)
    run("gallery", "add", "shop", photos, *as_json, status=1)
    (photos / "4.png").unlink()
    run("index", photos, "-g", "shop", *as_json)
    run("gallery", "add", "shop", photos, *as_json)


@pytest.mark.parametrize(("level", "status"), [("unknown", 0), ("none", 0), ("moderate", 0), ("strong", 1)])
def test_strong_drift_shows_in_the_status(
    run: Run,
    gallery: Gallery,
    calibrate: Calibrate,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    status: int,
) -> None:
    record = calibrate(gallery)
    found = DriftState(calibration=record, pipeline="", since=None, level=level)  # type: ignore[arg-type]
    monkeypatch.setattr("vicinal.service.measuring.drift.read_drift", lambda *_: found)
    run("calibration", "drift", "-g", "shoes", "--json", status=status)


def test_an_error_that_nobody_expected_does_not_look_like_a_finding(
    cli_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setitem(main.__globals__, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "Traceback" in capsys.readouterr().err
