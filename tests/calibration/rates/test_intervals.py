"""Intervals: how often they hold a truth that is known, and wrong ones that must be noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from vicinal.calibration import (
    LabelCounts,
    rate_interval,
    ratio_interval,
)
from vicinal.calibration.rates.intervals import rate_posterior

Interval = Callable[[LabelCounts, np.random.Generator], tuple[float, float]]
NORMAL = NormalDist()
REPETITIONS = 200
# 95 % within what 200 repetitions leave open.
LEAST, MOST = 0.92, 0.98


def draw_sizes(rng, n_labels: int, even: bool):
    if even:
        return np.full(n_labels, 20)
    return np.maximum(2, np.round(rng.lognormal(np.log(12.0), 1.0, n_labels))).astype(int)


def draw_scores(rng, n_labels: int, even: bool, correlation: float):
    """Normal scores around normal means of the labels, standard normal together."""
    codes = np.repeat(np.arange(n_labels), draw_sizes(rng, n_labels, even))
    means = math.sqrt(correlation) * rng.standard_normal(n_labels)
    return means[codes] + math.sqrt(1.0 - correlation) * rng.standard_normal(len(codes)), codes


def choose_on_sample(rng, n_labels: int, even: bool, correlation: float = 0.5):
    """Counts at the lowest threshold with at most 5 % events, that threshold, and its true rate."""
    scores, codes = draw_scores(rng, n_labels, even, correlation)
    threshold = np.sort(scores)[len(scores) - 1 - int(0.05 * len(scores))]
    return LabelCounts.of(scores > threshold, codes), threshold, 1.0 - NORMAL.cdf(threshold)


def coverage(interval: Interval, n_labels: int, even: bool) -> float:
    """Share of the repetitions in which the interval holds the true rate of a chosen threshold."""
    hits = 0
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, n_labels, even])
        counts, _, truth = choose_on_sample(rng, n_labels, even)
        low, high = interval(counts, rng)
        hits += low <= truth <= high
    return hits / REPETITIONS


def by_model(counts: LabelCounts, rng: np.random.Generator) -> tuple[float, float]:
    found = rate_interval(counts)
    return found.low, found.high


def over_trials(counts: LabelCounts, rng: np.random.Generator) -> tuple[float, float]:
    drawn = rng.binomial(counts.n_trials, counts.rate, 500) / counts.n_trials
    return tuple(np.quantile(drawn, [0.025, 0.975]))


def over_labels(counts: LabelCounts, rng: np.random.Generator) -> tuple[float, float]:
    drawn = rng.integers(0, counts.n_labels, (500, counts.n_labels))
    return tuple(np.quantile(counts.events[drawn].sum(1) / counts.trials[drawn].sum(1), [0.025, 0.975]))


CELLS = [(5, True), (5, False), (10, True), (30, False)]


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "even"), CELLS)
def test_intervals_hold_the_rate_of_a_threshold_chosen_on_the_sample(n_labels: int, even: bool) -> None:
    assert LEAST <= coverage(by_model, n_labels, even) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "even"), CELLS)
@pytest.mark.parametrize("wrong", [over_trials, over_labels])
def test_plain_bootstraps_fail_the_same_check(wrong: Interval, n_labels: int, even: bool) -> None:
    """Negative control: over trials the labels are ignored, over labels their small number."""
    assert coverage(wrong, n_labels, even) < LEAST


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "correlation"), [(0.05, 0.3), (0.2, 0.1)])
def test_intervals_hold_the_rate_of_a_fixed_threshold(rate: float, correlation: float) -> None:
    """Ten uneven labels whose rates are beta distributed."""
    hits, m = [], 1.0 / correlation - 1.0
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, 2])
        sizes = draw_sizes(rng, 10, even=False)
        counts = LabelCounts(rng.binomial(sizes, rng.beta(rate * m, (1.0 - rate) * m, 10)), sizes)
        found = rate_interval(counts)
        hits.append(found.low <= rate <= found.high)
    # Where none of ten labels has the event, the safety line is wider than the model.
    assert LEAST <= np.mean(hits) <= (MOST if rate > 0.1 else 1.0)


def draw_pairs(rng, n_labels: int = 30, correlation: float = 0.2) -> tuple[LabelCounts, LabelCounts]:
    """Pairs of labels with normal effects of both, counted under both, and under the first alone."""
    first, second = (np.repeat(one, 20) for one in np.triu_indices(n_labels, 1))
    effects = math.sqrt(correlation / 2.0) * rng.standard_normal(n_labels)
    noise = math.sqrt(1.0 - correlation) * rng.standard_normal(len(first))
    accepted = effects[first] + effects[second] + noise > 1.6449
    return LabelCounts.of(accepted, first, second), LabelCounts.of(accepted, first)


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "correlation"), [(10, 0.2), (20, 0.2), (30, 0.2)])
def test_intervals_of_pairs_hold_the_truth_and_need_both_labels(n_labels: int, correlation: float) -> None:
    """Negative control: pairs that are counted under one of their labels are taken for too certain."""
    hits = []
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, 3])
        both, one = (rate_interval(counts) for counts in draw_pairs(rng, n_labels, correlation))
        hits.append([found.low <= 0.05 <= found.high for found in (both, one)])
    of_both, of_one = np.mean(hits, axis=0)
    # With 10 labels it is .924 in 1,000 repetitions.
    assert (LEAST if n_labels > 10 else 0.9) <= of_both <= MOST
    assert of_one < 0.85 or n_labels < 30


def draw_returned(rng, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mates and others among the returned matches; hard labels return fewer mates and many others."""
    hardness = rng.standard_normal(n_labels)
    return rng.poisson(10 * np.exp(-0.3 * hardness)), rng.poisson(2 * np.exp(hardness))


@pytest.mark.slow
def test_intervals_of_a_precision_allow_for_labels_that_return_more_when_they_are_hard() -> None:
    """Negative control: taken for a rate whose trials were given, it is far off with many labels."""
    # Means of exp(a z) over standard normal z are exp(a^2 / 2).
    mates, others = 10 * math.exp(0.045), 2 * math.exp(0.5)
    truth, hits = mates / (mates + others), {20: [], 500: []}
    for n_labels, found in hits.items():
        for repetition in range(REPETITIONS):
            own, wrong = draw_returned(np.random.default_rng([repetition, n_labels]), n_labels)
            counts = LabelCounts(own, np.maximum(own + wrong, 1))
            intervals = ratio_interval(counts), rate_interval(counts)
            found.append([one.low <= truth <= one.high for one in intervals])
    assert 0.9 <= np.mean(hits[20], axis=0)[0] <= MOST
    assert LEAST <= np.mean(hits[500], axis=0)[0] <= MOST
    assert np.mean(hits[500], axis=0)[1] < 0.85


@pytest.mark.parametrize("events", [[0, 0, 0], [9, 9, 9], [3, 3, 3]])
def test_a_ratio_without_differences_rests_on_its_labels(events) -> None:
    found = ratio_interval(LabelCounts(np.array(events), np.array([9, 9, 9])))
    assert 0.0 <= found.low <= found.rate <= found.high <= 1.0
    assert found.high - found.low > 0.3


def slow_posterior(counts: LabelCounts, rho: float, mu: float) -> float:
    """Likelihood times prior density."""
    m = 1.0 / rho - 1.0
    a, b = mu * m, (1.0 - mu) * m
    log_likelihood = sum(
        log_beta(a + x, b + n - x) - log_beta(a, b)
        for x, n in zip(counts.events.tolist(), counts.trials.tolist(), strict=True)
    )
    return math.exp(log_likelihood) * (1.0 - rho) / math.sqrt(mu * (1.0 - mu))


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def test_the_posterior_is_that_of_the_definition() -> None:
    """Its distribution function, by sums over a fine even grid of both parameters."""
    counts = LabelCounts(np.array([0, 3, 1, 6]), np.array([12, 9, 20, 15]))
    rates, correlations = (np.arange(400) + 0.5) / 400, (np.arange(100) + 0.5) / 100
    slow = np.array([[slow_posterior(counts, rho, mu) for mu in rates] for rho in correlations])
    shares = (slow / slow.sum()).sum(axis=0).cumsum()
    found = rate_posterior(counts)
    for share in (0.025, 0.5, 0.975):
        assert found.quantiles([share])[0] == pytest.approx(np.interp(share, shares, rates), rel=0.02)
    assert found.correlation == pytest.approx((slow.sum(axis=1) * correlations).sum() / slow.sum(), rel=0.02)


@pytest.mark.parametrize(("correlation", "expected"), [(0.02, (0.0, 0.05)), (0.4, (0.3, 0.5))])
def test_many_labels_tell_how_much_they_differ(correlation: float, expected: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    m = 1.0 / correlation - 1.0
    trials = np.full(1000, 20)
    counts = LabelCounts(rng.binomial(trials, rng.beta(0.2 * m, 0.8 * m, 1000)), trials)
    assert expected[0] < rate_posterior(counts).correlation < expected[1]


def test_labels_that_are_all_alike_leave_the_interval_of_a_binomial() -> None:
    """1,000 labels of one trial each cannot differ: quantiles of Beta(50.5, 950.5), Jeffreys' interval."""
    events = np.zeros(1000, dtype=np.int64)
    events[:50] = 1
    found = rate_interval(LabelCounts(events, np.ones(1000, dtype=np.int64)))
    assert (found.low, found.high) == pytest.approx((0.03777, 0.06483), abs=2e-4)


def test_no_event_in_few_labels_leaves_much_open() -> None:
    """100 trials of 4 labels without an event are no proof of a rate below 3 %."""
    none = np.zeros(4, dtype=np.int64)
    few = rate_interval(LabelCounts(none, np.full(4, 25)))
    many = rate_interval(LabelCounts(np.zeros(100, dtype=np.int64), np.ones(100, dtype=np.int64)))
    assert (few.low, few.rate) == (0.0, 0.0)
    assert few.high > 3.0 * many.high
