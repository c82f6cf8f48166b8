"""Drift: seen where it is, not where chance alone is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import CalibrationError
from vicinal.calibration.drift import TopScoreCounts, measure_drift, population_stability_index, share_change

scores = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60)


def calibrated(seed: int = 0, n: int = 2000) -> TopScoreCounts:
    return TopScoreCounts.of_calibration(np.random.default_rng(seed).beta(4, 2, n), 0.5)


def slow_psi(expected, actual) -> float:
    total = 0.0
    for then, now in zip(expected, actual, strict=True):
        p = (then + 0.5) / (sum(expected) + 0.5 * len(expected))
        q = (now + 0.5) / (sum(actual) + 0.5 * len(actual))
        total += (q - p) * math.log(q / p)
    return total


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=12))
def test_psi_is_that_of_the_definition_and_at_least_zero(bins) -> None:
    then, now = (list(counts) for counts in zip(*bins, strict=True))
    psi = population_stability_index(np.array(then), np.array(now))
    assert psi == pytest.approx(slow_psi(then, now), abs=1e-12)
    assert psi >= 0.0


@settings(deadline=None)
@given(scores, scores)
def test_counting_at_once_and_bit_by_bit_is_the_same(first, second) -> None:
    empty = TopScoreCounts.of_calibration(np.array(first), 0.5).emptied()
    assert empty.updated(first, 0.5).updated(second, 0.5) == empty.updated([*first, *second], 0.5)


@settings(deadline=None)
@given(scores)
def test_bins_hold_the_scores_between_their_edges(values) -> None:
    found = TopScoreCounts.of_calibration(np.array(values), 0.5, n_bins=4)
    ends = itertools.pairwise([-math.inf, *found.edges, math.inf])
    slow = [sum(low <= value < high for value in values) for low, high in ends]
    assert found.counts == tuple(slow)
    assert found.n_no_match == sum(value < 0.5 for value in values)


@pytest.mark.parametrize("n", [50, 300, 5000])
def test_chance_alone_is_no_drift(n: int) -> None:
    """Of 200 comparisons of equal worlds next to none is called strong, and few moderate."""
    reference, levels = calibrated(), []
    for seed in range(200):
        current = reference.emptied().updated(np.random.default_rng([seed, n]).beta(4, 2, n), 0.5)
        levels.append(measure_drift(reference, current).level)
    assert levels.count("strong") <= 4
    assert levels.count("none") >= 180


def test_the_rule_of_thumb_alone_would_call_chance_a_drift() -> None:
    """Negative control: with 50 queries in 10 bins, PSI passes 0.1 more often than not."""
    reference = calibrated()
    passed = 0
    for seed in range(200):
        current = reference.emptied().updated(np.random.default_rng([seed, 50]).beta(4, 2, 50), 0.5)
        passed += measure_drift(reference, current).psi >= 0.1
    assert passed > 100


@pytest.mark.parametrize(("shape", "level"), [((3.2, 2), "moderate"), ((2, 2), "strong")])
def test_other_scores_are_a_drift(shape: tuple[float, float], level: str) -> None:
    reference = calibrated()
    current = reference.emptied().updated(np.random.default_rng(1).beta(*shape, 3000), 0.5)
    assert measure_drift(reference, current).level == level


def test_more_queries_without_a_match_are_a_drift() -> None:
    reference = TopScoreCounts((0.5,), (100, 900), 100)
    drift = measure_drift(reference, TopScoreCounts((0.5,), (150, 850), 150))
    low, high = drift.no_match_interval
    assert 0.0 < low < 0.05 < high
    assert drift.level == "moderate"


def test_the_interval_of_a_change_is_that_of_the_published_example() -> None:
    """Newcombe (1998), table II: 56 of 70 against 48 of 80 differ by 0.2 [0.0524, 0.3339]."""
    assert share_change((48, 80), (56, 70)) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_interval_of_a_change_holds_the_truth() -> None:
    rng = np.random.default_rng(0)
    then, now = rng.binomial(400, 0.1, 1000), rng.binomial(60, 0.15, 1000)
    found = [share_change((a, 400), (b, 60)) for a, b in zip(then.tolist(), now.tolist(), strict=True)]
    assert 0.93 <= np.mean([low <= 0.05 <= high for low, high in found]) <= 0.98


def test_other_bins_and_missing_queries_are_refused() -> None:
    reference = calibrated()
    with pytest.raises(CalibrationError, match="other bins"):
        measure_drift(reference, calibrated(1))
    with pytest.raises(CalibrationError, match="2000 queries then and 0 now"):
        measure_drift(reference, reference.emptied())
