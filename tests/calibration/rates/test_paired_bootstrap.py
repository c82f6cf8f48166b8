"""Paired bootstrap: the same as drawing labels one by one, and honest about what it does not know."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration import CalibrationError
from vicinal.calibration.rates.paired_bootstrap import paired_difference, paired_variance_difference


@pytest.fixture
def queries() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hits of 120 queries of 12 labels before and after, labels of unequal sizes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 12, 120)
    easy = rng.random(12)[labels]
    old, new = ((rng.random(120) < easy).astype(float) for _ in range(2))
    return old, new, labels


def draw_labels_one_by_one(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray, n_draws: int
) -> tuple[float, float]:
    """The slow, obvious way, with draws of its own."""
    rng = np.random.default_rng(99)
    names, found = np.unique(labels), []
    for _ in range(n_draws):
        rows = np.concatenate([np.flatnonzero(labels == name) for name in rng.choice(names, len(names))])
        found.append(new[rows].mean() - old[rows].mean())
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def test_the_interval_is_that_of_labels_drawn_one_by_one(queries: tuple[np.ndarray, ...]) -> None:
    expected = draw_labels_one_by_one(*queries, n_draws=4000)
    found = paired_difference(*queries, n_draws=20_000)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.02)


def test_drawing_queries_in_place_of_labels_would_be_noticed() -> None:
    """With labels that are all or nothing the interval of single queries is several times shorter."""
    labels = np.repeat(np.arange(10), 40)
    old, new = np.zeros(400), np.repeat([1.0, 0.0] * 5, 40)
    low, high = draw_labels_one_by_one(old, new, labels, 4000)
    wrong = paired_difference(old, new, np.arange(400))
    assert paired_difference(old, new, labels).high == pytest.approx(high, abs=0.1)
    assert wrong.high - wrong.low < 0.5 * (high - low)


def test_the_difference_is_that_of_the_means(queries: tuple[np.ndarray, ...]) -> None:
    old, new, _ = queries
    found = paired_difference(*queries)
    assert found.difference == pytest.approx(new.mean() - old.mean(), abs=1e-12)
    assert (found.old, found.n_labels) == (old.mean(), 12)


def test_what_both_share_cancels(queries: tuple[np.ndarray, ...]) -> None:
    old, _, labels = queries
    found = paired_difference(old, old, labels)
    assert (found.low, found.high) == (0.0, 0.0)


def test_swapping_the_two_turns_the_interval_around(queries: tuple[np.ndarray, ...]) -> None:
    old, new, labels = queries
    there, back = paired_difference(old, new, labels), paired_difference(new, old, labels)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-12)


def test_the_same_seed_gives_the_same_interval(queries: tuple[np.ndarray, ...]) -> None:
    assert paired_difference(*queries, seed=3) == paired_difference(*queries, seed=3)
    assert paired_difference(*queries, seed=3) != paired_difference(*queries, seed=4)


def test_variances_are_those_of_labels_drawn_one_by_one() -> None:
    rng = np.random.default_rng(1)
    old, new = rng.random((9, 5)), 0.5 * rng.random((9, 5))
    expected = []
    for _ in range(4000):
        rows = rng.integers(0, 9, 9)
        expected.append(9 / 8 * (new[rows].var(axis=0).mean() - old[rows].var(axis=0).mean()))
    found = paired_variance_difference(old, new, n_draws=20_000)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])), abs=0.006)
    assert found.difference == pytest.approx(new.var(axis=0).mean() - old.var(axis=0).mean(), abs=1e-12)


def test_drawn_variances_are_not_too_small_in_the_mean() -> None:
    rng = np.random.default_rng(2)
    old, new = np.full((6, 4), 0.5), rng.random((6, 4))
    found = paired_variance_difference(old, new, n_draws=40_000, confidence=0.001)
    draws = [6 / 5 * new[rng.integers(0, 6, 6)].var(axis=0).mean() for _ in range(20_000)]
    assert (found.low + found.high) / 2 == pytest.approx(float(np.median(draws)), abs=0.003)
    assert np.mean(draws) == pytest.approx(found.new, abs=0.002)


@pytest.mark.parametrize("n", [(0, 0, 0), (2, 3, 3), (3, 3, 2)])
def test_figures_without_partners_are_refused(n: tuple[int, int, int]) -> None:
    with pytest.raises(CalibrationError, match="one of each a query"):
        paired_difference(np.zeros(n[0]), np.zeros(n[1]), np.zeros(n[2], np.int64))


def test_one_label_has_no_variance() -> None:
    with pytest.raises(CalibrationError, match="two or more"):
        paired_variance_difference(np.zeros((1, 4)), np.zeros((1, 4)))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(CalibrationError, match="confidence"):
        paired_difference(np.zeros(3), np.ones(3), np.arange(3), confidence=confidence)
