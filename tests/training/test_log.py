"""Training log: records as CSV and as curves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from vicinal.training.log import TrainingLog
from vicinal.training.observer import StepRecord

RECORDS = [StepRecord(10, 2.0, 0.5, 0.25, 1.0), StepRecord(20, 1.0, 0.75, 0.5, 2.0)]


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "training.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _write(folder: Path, records: list[StepRecord]) -> TrainingLog:
    """The log of a run that has these records one after the other."""
    log = TrainingLog(folder)
    for n_records in range(1, len(records) + 1):
        log.write(records[:n_records])
    return log


def test_csv_has_a_line_for_each_record(tmp_path: Path) -> None:
    _write(tmp_path, RECORDS)
    assert [
        StepRecord(int(row.pop("step")), **{k: float(v) for k, v in row.items()}) for row in _rows(tmp_path)
    ] == RECORDS


def test_csv_of_a_resumed_run_forgets_what_its_checkpoint_does_not_know(tmp_path: Path) -> None:
    _write(tmp_path, RECORDS)
    TrainingLog(tmp_path).write([RECORDS[0], StepRecord(20, 7.0, 0.0, 0.0, 9.0)])
    assert [row["loss"] for row in _rows(tmp_path)] == ["2.0", "7.0"]


@pytest.mark.slow
def test_curves_are_a_picture_with_three_lines(tmp_path: Path) -> None:
    _write(tmp_path, RECORDS).finish(RECORDS, RECORDS[-1])
    pixels = np.asarray(Image.open(tmp_path / "training.png").convert("RGB")).astype(int)
    blue = (pixels[..., 2] - pixels[..., 0]) > 100
    thirds = np.array_split(blue.any(axis=0), 3)
    assert pixels.shape[1] > 2 * pixels.shape[0]
    assert all(third.any() for third in thirds)
