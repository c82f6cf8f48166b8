"""What is wrong with the training images of the robustness runs, and the table of what that costs."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from benchmarks.losses.features import Features  # noqa: E402
from benchmarks.losses.robustness import Harm, harmed  # noqa: E402


def _features(value: float, n_views: int) -> Features:
    labels = np.repeat([f"{place:02}" for place in range(20)], 10)
    return Features(np.full((200, n_views, 3), value, np.float32), labels, np.full(200, "train"))


OWN, OTHER = _features(1.0, 2), _features(-1.0, 1)


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
