"""Open-set search: who is asked about whom, and the rate that a threshold gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.training.evaluation import deal_roles, fnir_at_fpir, map_at_r_by_halves

scores = st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=30)


def fnir_by_trying(mates: Any, absent: Any, fpir: float) -> float:
    """Every threshold that could matter."""
    thresholds = [*mates, *absent, *(np.nextafter(one, 2.0) for one in (*mates, *absent))]
    allowed = [t for t in thresholds if np.mean(np.array(absent) >= t) <= fpir]
    return min(float(np.mean(np.array(mates) < t)) for t in allowed)


@given(mates=scores, absent=scores, fpir=st.sampled_from([0.05, 0.1, 0.25, 0.5]))
def test_fnir_is_the_lowest_that_any_threshold_within_the_rate_gives(
    mates: list[float], absent: list[float], fpir: float
) -> None:
    assert fnir_at_fpir(mates, absent, fpir) == pytest.approx(fnir_by_trying(mates, absent, fpir))


def test_each_class_is_known_in_one_draw_and_absent_in_the_next() -> None:
    labels = np.repeat(["a", "b", "c", "d"], 4)
    first, second = deal_roles(range(16), labels, draws=2, rng=np.random.default_rng(0))
    assert set(labels[first.gallery]) == set(labels[first.known]) == set(labels[second.absent])
    assert set(labels[first.absent]) == set(labels[second.gallery])
    assert not set(first.gallery) & set(first.known)


def test_map_at_r_by_halves_asks_each_half_about_the_other() -> None:
    """Alike in each half, and turned by a right angle between the halves of `b`: only `a` is found."""
    labels = np.repeat(["a", "b"], 4)
    items = np.eye(4)[[0, 0, 0, 0, 1, 1, 2, 2]]
    assert map_at_r_by_halves(items, labels) == 0.5
    assert map_at_r_by_halves(items[:4], labels[:4]) == 1.0


def test_what_stands_beside_may_be_found_in_place_of_a_mate() -> None:
    """Mates are at .5 of each other; what stands beside is each item itself."""
    labels = np.repeat(np.arange(8), 2)
    items = np.zeros((16, 24))
    items[np.arange(16), labels] = items[np.arange(16), 8 + np.arange(16)] = 1.0
    assert map_at_r_by_halves(items, labels) == 1.0
    assert map_at_r_by_halves(items, labels, items) == 0.0
