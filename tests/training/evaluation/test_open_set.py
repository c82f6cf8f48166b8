"""Open-set search: who is asked about whom, and the rate that a threshold gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.training.evaluation import deal_roles, fnir_at_fpir

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
