"""Rows of the papers' tables on frozen features: their images, what chooses them, and the page's tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from benchmarks.common.record import RESULTS  # noqa: E402
from benchmarks.losses.features import Features  # noqa: E402
from benchmarks.losses.loss_tables import NAME, PAGE, SETS, Row, resized, rows, tables  # noqa: E402
from benchmarks.losses.report import replace_tables  # noqa: E402
from benchmarks.losses.training import batches  # noqa: E402

LABELS = np.repeat([f"{place:02}" for place in range(20)], 30)
TRAINING = Features(np.arange(600.0, dtype=np.float32)[:, None, None], LABELS, np.full(600, "train"))


def _sizes(part: Features) -> list[int]:
    return np.unique(part.labels, return_counts=True)[1].tolist()


def test_skewed_classes_have_very_different_sizes_and_even_ones_as_many_images_in_all() -> None:
    skewed, even = (resized(TRAINING, shape, 24, seed=0) for shape in ("skewed", "even"))
    assert (min(_sizes(skewed)), max(_sizes(skewed))) == (4, 24)
    assert len(set(_sizes(even))) == 1
    assert len(even.labels) == pytest.approx(len(skewed.labels), abs=10)
    assert _sizes(resized(TRAINING, "skewed", 24, seed=1)) != _sizes(skewed)


def test_a_batch_of_the_hierarchical_rows_holds_two_super_labels_and_takes_turns_with_plain_ones() -> None:
    plain, hierarchical, *_ = rows("omniglot")
    records = _choices([plain, hierarchical], {})
    run = hierarchical.final_run(0, records)
    classes = np.repeat(np.arange(64), 6)
    super_labels = classes // 16
    for positions in batches(dataclasses.replace(run, steps=5), classes, super_labels):
        assert len(set(super_labels[positions])) == 2
    assert dataclasses.replace(plain.final_run(0, records), name=run.name, sampler=run.sampler) == run


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


def test_a_regularizer_gets_the_weight_of_the_lowest_opis_that_costs_little() -> None:
    base, *others = (row for row in rows("grocery") if row.group == "regularizers")
    one = next(row for row in others if row.name == f"{base.name} + triplet")
    lower, costly = {"opis": 0.01}, {"opis": 0.001, "map_at_r": 0.4}
    name = f"{one.name}: "
    assert one.chosen(_choices([base, one], {f"{name}0.1": costly, f"{name}1": lower})) == "1"
    assert one.chosen(_choices([base, one], {f"{name}0.1": lower, f"{name}1": costly})) == "0.1"


def test_every_run_of_a_set_has_files_of_its_own() -> None:
    own = [one for images in SETS for one in rows(images)]
    keys = [run.key for one in own for run in one.choice_runs()]
    keys += [one.final_run(seed, _choices(own, {})).key for one in own for seed in (0, 1)]
    assert len(set(keys)) == len(keys)


def test_the_page_shows_the_raw_result(tmp_path: Path) -> None:
    records = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))["runs"]
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    replace_tables(page, tables(records))
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
