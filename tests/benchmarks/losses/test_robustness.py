"""What is wrong with the training images of the robustness runs, and the table of what that costs."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from benchmarks.losses.features import Features  # noqa: E402
from benchmarks.losses.robustness import LOSSES, Harm, harmed, harmed_runs, table  # noqa: E402


def _features(value: float, n_views: int) -> Features:
    labels = np.repeat([f"{place:02}" for place in range(20)], 10)
    return Features(np.full((200, n_views, 3), value, np.float32), labels, np.full(200, "train"))


OWN, OTHER = _features(1.0, 2), _features(-1.0, 1)


def test_nothing_is_changed_without_harm() -> None:
    found = harmed(OWN, OTHER, Harm(), seed=0)
    assert (found.views == 1.0).all()
    assert np.array_equal(found.labels, OWN.labels)


def test_foreign_images_stand_under_the_labels_of_those_that_they_replace() -> None:
    found = harmed(OWN, OTHER, Harm(foreign=0.2), seed=0)
    is_foreign = (found.views == -1.0).all(axis=(1, 2))
    assert ((found.views == 1.0).all(axis=(1, 2)) == ~is_foreign).all()
    assert is_foreign.mean() == pytest.approx(0.2, abs=0.08)
    assert np.array_equal(found.labels, OWN.labels)


def test_whole_classes_are_gone_and_differ_by_seed() -> None:
    first, again, other = (harmed(OWN, OTHER, Harm(classes=0.5), seed=seed) for seed in (0, 0, 1))
    assert np.unique(first.labels, return_counts=True)[1].tolist() == [10] * 10
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)


def _record(group: str, name: str, seed: int, map_at_r: float) -> dict[str, object]:
    return {"images": "a", "group": group, "name": name, "seed": seed, "test": {"map_at_r": map_at_r}}


def test_losses_take_the_rate_of_the_best_held_out_classes_and_learn_from_the_same_batches() -> None:
    rates = [
        {"images": "grocery", "group": "rates", "name": f"{name}@{rate:g}", "held_out": {"map_at_r": rate}}
        for name in LOSSES
        for rate in (3e-4, 1e-3, 3e-3)
    ]
    runs = [run for run, _ in harmed_runs("grocery", 38, rates)]
    assert {run.learning_rate for run in runs} == {3e-3}
    assert {run.sampler["batch_size"] for run in runs} == {256, 30 * 8, 27 * 8, 23 * 8, 19 * 8}


def test_the_table_compares_each_seed_with_itself_without_harm() -> None:
    records = [
        _record(harm, name, seed, 0.5 + 0.1 * seed - 0.25 * (harm == "20% wrong"))
        for harm in ("none", "20% wrong")
        for name in LOSSES
        for seed in (0, 1)
    ]
    lines = table(records, "a").splitlines()
    assert lines[2:] == [
        "| MAP@R without harm | " + " | ".join(["0.550 ± 0.071"] * len(LOSSES)) + " |",
        "| 20 % wrong | " + " | ".join(["-0.250 ± 0.000"] * len(LOSSES)) + " |",
    ]
