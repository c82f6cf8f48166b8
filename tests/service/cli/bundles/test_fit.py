"""`vicinal fit`: what scripts learn of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.service.fitting.test_report import report
from tests.training.conftest import write_class_folders
from vicinal.service.cli.main import app
from vicinal.service.operations import fit


@pytest.mark.parametrize(("gain", "status"), [(0.1, 0), (0.0, 1), (-0.1, 1)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_exit_status_says_whether_more_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, status: int, options: list[str]
) -> None:
    photos = write_class_folders(tmp_path / "photos", n_classes=2, per_class=2, side=20)
    monkeypatch.setattr(fit, "learn", lambda *_, **__: report(value=gain))
    monkeypatch.setattr("vicinal.service.training.require_train_extra", lambda _: None)
    done = CliRunner().invoke(app, ["fit", str(photos), "-o", str(tmp_path / "mine"), *options])
    assert (done.exit_code, "Error" in done.output) == (status, False)
