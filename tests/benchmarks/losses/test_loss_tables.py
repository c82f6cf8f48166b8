"""Rows of the papers' tables on frozen features: their images, what chooses them, and the page's tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from benchmarks.common.record import RESULTS  # noqa: E402
from benchmarks.losses.loss_tables import NAME, PAGE, Row, rows, tables  # noqa: E402
from benchmarks.losses.report import replace_tables  # noqa: E402


def _choices(own: Sequence[Row], changes: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Held-out figures of all tries; some differ, by the name of the try."""
    figures = {"map_at_r": 0.5, "hit_rate_1": 0.9, "opis": 0.02}
    return [
        {**dataclasses.asdict(run), "held_out": {**figures, **changes.get(run.name, {})}}
        for one in own
        for run in one.choice_runs()
    ]


def test_held_out_classes_choose_lambda_and_rate_by_precision() -> None:
    one = next(row for row in rows("grocery") if row.name == "delta .5")
    run = one.final_run(2, _choices([one], {"delta .5: lambda 64": {"map_at_r": 0.6}}))
    assert run.loss["arguments"]["negatives_per_positive"] == 64
    assert run.loss["arguments"]["importance"] == 0.5
    assert run.loss["arguments"]["batch_design"] == run.sampler
    assert (run.seed, run.fold) == (2, None)


def test_the_page_shows_the_raw_result(tmp_path: Path) -> None:
    records = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))["runs"]
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    replace_tables(page, tables(records))
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
