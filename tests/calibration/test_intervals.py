"""Intervals: how often they hold a truth that is known, and wrong ones that must be noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from calibration import CalibrationError, LabelCounts, prediction_interval, rate_interval
from calibration.dispersion import DISPERSIONS, dispersion_posterior, effective_trials

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
    found = rate_interval(counts, is_chosen=True)
    return found.low, found.high


def over_trials(counts: LabelCounts, rng: np.random.Generator) -> tuple[float, float]:
    drawn = rng.binomial(counts.n_trials, counts.rate, 500) / counts.n_trials
    return tuple(np.quantile(drawn, [0.025, 0.975]))


def over_labels(counts: LabelCounts, rng: np.random.Generator) -> tuple[float, float]:
    drawn = rng.integers(0, counts.n_labels, (500, counts.n_labels))
    return tuple(np.quantile(counts.events[drawn].sum(1) / counts.trials[drawn].sum(1), [0.025, 0.975]))


CELLS = [(5, True), (10, True), (30, False)]


@pytest.mark.parametrize(("n_labels", "even"), CELLS)
def test_intervals_hold_the_rate_of_a_threshold_chosen_on_the_sample(n_labels: int, even: bool) -> None:
    assert LEAST <= coverage(by_model, n_labels, even) <= MOST


def test_five_uneven_labels_are_not_trusted_too_far() -> None:
    """So little is known of them that the interval may only be too long."""
    assert coverage(by_model, 5, False) >= LEAST


@pytest.mark.parametrize(("n_labels", "even"), CELLS)
@pytest.mark.parametrize("wrong", [over_trials, over_labels])
def test_plain_bootstraps_fail_the_same_check(wrong: Interval, n_labels: int, even: bool) -> None:
    """Negative control: over trials the labels are ignored, over labels their small number."""
    assert coverage(wrong, n_labels, even) < LEAST


@pytest.mark.parametrize(("n_labels", "even"), [(4, True), (30, False)])
def test_predictions_hold_what_further_labels_show(n_labels: int, even: bool) -> None:
    """Seven further labels, as in a test set that few were left for."""
    hits = []
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, n_labels, 1])
        counts, threshold, _ = choose_on_sample(rng, n_labels, even)
        shown = (draw_scores(rng, 7, even, 0.5)[0] > threshold).mean()
        found = prediction_interval(counts, 7, is_chosen=True)
        hits.append(found.low <= shown <= found.high)
    assert LEAST <= np.mean(hits) <= MOST


def test_an_interval_of_the_rate_is_no_prediction_for_few_labels() -> None:
    """Negative control: what seven labels show scatters more than the rate of all labels."""
    hits = []
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng([repetition, 30, 1])
        counts, threshold, _ = choose_on_sample(rng, 30, False)
        shown = (draw_scores(rng, 7, False, 0.5)[0] > threshold).mean()
        low, high = by_model(counts, rng)
        hits.append(low <= shown <= high)
    assert np.mean(hits) < LEAST


def slow_posterior(counts: LabelCounts, rho: float) -> float:
    """Likelihood times prior density at one dispersion, mu summed over a fine even grid."""
    m, total = 1.0 / rho - 1.0, 0.0
    for mu in (np.arange(4000) + 0.5) / 4000:
        a, b = mu * m, (1.0 - mu) * m
        log_likelihood = sum(
            log_beta(a + x, b + n - x) - log_beta(a, b)
            for x, n in zip(counts.events.tolist(), counts.trials.tolist(), strict=True)
        )
        total += math.exp(log_likelihood) / math.sqrt(mu * (1.0 - mu))
    return total * (1.0 - rho)


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def test_the_posterior_of_the_dispersion_is_that_of_the_definition() -> None:
    counts = LabelCounts(np.array([0, 3, 1, 6]), np.array([12, 9, 20, 15]))
    # Cells of equal width, so that their masses compare like densities.
    cells = [-28, -20, -12, -4]
    fast = dispersion_posterior(counts)[cells]
    slow = np.array([slow_posterior(counts, DISPERSIONS[cell]) for cell in cells])
    np.testing.assert_allclose(fast / fast.sum(), slow / slow.sum(), rtol=0.01)


@pytest.mark.parametrize(("correlation", "expected"), [(0.02, (0.0, 0.05)), (0.4, (0.3, 0.5))])
def test_many_labels_tell_the_dispersion(correlation: float, expected: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    m = 1.0 / correlation - 1.0
    trials = np.full(1000, 20)
    counts = LabelCounts(rng.binomial(trials, rng.beta(0.2 * m, 0.8 * m, 1000)), trials)
    mean = (dispersion_posterior(counts) * DISPERSIONS).sum()
    assert expected[0] < mean < expected[1]


def test_effective_trials_give_the_variance_of_the_rate() -> None:
    """Uneven labels drawn 20,000 times."""
    rng = np.random.default_rng(0)
    sizes, rho, mu = np.array([5, 20, 60]), 0.3, 0.2
    m = 1.0 / rho - 1.0
    rates = rng.beta(mu * m, (1.0 - mu) * m, (20_000, 3))
    variance = (rng.binomial(sizes, rates).sum(axis=1) / sizes.sum()).var()
    worth = effective_trials(LabelCounts(np.zeros(3, np.int64), sizes), np.array([rho]))[0]
    assert mu * (1.0 - mu) / worth == pytest.approx(variance, rel=0.04)


def test_effective_trials_of_pairs_count_both_labels() -> None:
    """Pairs of 8 labels with normal effects of both: the spread of their rate, drawn 2,000 times."""
    rng = np.random.default_rng(0)
    first, second = (np.repeat(one, 100) for one in np.triu_indices(8, 1))
    rates, expected = [], []
    for _ in range(2000):
        effects = 0.5 * rng.standard_normal(8)
        noise = math.sqrt(0.5) * rng.standard_normal(len(first))
        counts = LabelCounts.of(effects[first] + effects[second] + noise > 0.5, first, second)
        binomial = counts.rate * (1.0 - counts.rate)
        rho = (counts.events / counts.trials).var(ddof=1) / binomial
        rates.append(counts.rate)
        expected.append(binomial / effective_trials(counts, np.array([rho]))[0])
    assert np.mean(expected) == pytest.approx(np.var(rates), rel=0.1)


def test_an_interval_holds_its_rate_and_says_the_same_again() -> None:
    counts = LabelCounts(np.array([0, 0, 3]), np.array([20, 20, 20]))
    found = rate_interval(counts)
    assert 0.0 <= found.low <= found.rate == 0.05 <= found.high < 1.0
    assert rate_interval(counts) == found


def test_more_confidence_and_a_chosen_threshold_widen_an_interval_upward() -> None:
    counts = LabelCounts(np.array([1, 0, 3]), np.array([20, 20, 20]))
    found = rate_interval(counts)
    assert rate_interval(counts, confidence=0.99).high > found.high
    assert rate_interval(counts, is_chosen=True).high > found.high


def test_no_event_in_few_labels_leaves_much_open() -> None:
    """100 trials of 4 labels without an event are no proof of a rate below 3 %."""
    none = np.zeros(4, dtype=np.int64)
    few = rate_interval(LabelCounts(none, np.full(4, 25)))
    many = rate_interval(LabelCounts(np.zeros(100, dtype=np.int64), np.ones(100, dtype=np.int64)))
    assert (few.low, few.rate) == (0.0, 0.0)
    assert few.high > 3.0 * many.high


def test_one_label_leaves_nearly_everything_open() -> None:
    assert rate_interval(LabelCounts(np.array([5]), np.array([100]))).high > 0.5


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_a_confidence_out_of_range_is_refused(confidence: float) -> None:
    with pytest.raises(CalibrationError, match="confidence"):
        rate_interval(LabelCounts(np.array([1]), np.array([2])), confidence=confidence)


def test_a_prediction_for_no_labels_is_refused() -> None:
    with pytest.raises(CalibrationError, match="at least 1"):
        prediction_interval(LabelCounts(np.array([1]), np.array([2])), 0)
