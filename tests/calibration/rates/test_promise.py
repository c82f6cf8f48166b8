"""Promise: what later labels say of a promised rate, a slow reference, and a wrong test to be noticed."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import LabelCounts, RateInterval, check_promise, rate_interval
from vicinal.calibration.rates.intervals import rate_posterior
from vicinal.calibration.rates.promise import check_promise_by_interval

PROMISED = RateInterval(0.32, 0.2, 0.46, 0.95)


def counts_of(events: list[int], trials: list[int]) -> LabelCounts:
    return LabelCounts(np.array(events), np.array(trials))


def even(share: float, n_labels: int, n_trials: int = 10) -> LabelCounts:
    """Labels that all show the same share."""
    return counts_of([round(share * n_trials)] * n_labels, [n_trials] * n_labels)


def drawn(rng: np.random.Generator, n_labels: int, rate: float, correlation: float) -> LabelCounts:
    m = 1.0 / correlation - 1.0
    sizes = np.full(n_labels, 8)
    return LabelCounts(rng.binomial(sizes, rng.beta(rate * m, (1.0 - rate) * m, n_labels)), sizes)


def slow_p(counts: LabelCounts, promised: RateInterval) -> float:
    """P(mu' <= mu), cell by cell of the posterior, with the distribution function of the promise."""
    posterior, end = rate_posterior(counts), NormalDist().inv_cdf(0.975)
    low, rate, high = (math.asin(math.sqrt(one)) for one in (promised.low, promised.rate, promised.high))
    total = 0.0
    for rates, weights in zip(posterior.rates, posterior.weights, strict=True):
        for value, weight in zip(rates, weights, strict=True):
            at = math.asin(math.sqrt(value))
            spread = (rate - low if at < rate else high - rate) / end
            above = 1.0 - NormalDist().cdf((at - rate) / spread)
            total += weight * above
    return total


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("n_labels", [3, 12])
def test_the_probability_is_that_of_a_slow_sum(share: float, n_labels: int) -> None:
    counts = even(share, n_labels)
    assert check_promise(counts, PROMISED).p_not_worse == pytest.approx(slow_p(counts, PROMISED), abs=0.01)


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        (even(0.3, 15), "held"),
        (even(0.8, 15), "broken"),
        (even(0.0, 15), "better"),
        (even(0.6, 2), "unclear"),
    ],
)
def test_verdicts(counts: LabelCounts, verdict: str) -> None:
    assert check_promise(counts, PROMISED).verdict == verdict


labels = st.lists(st.tuples(st.integers(1, 12), st.floats(0.0, 1.0)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(labels, st.floats(0.0, 0.9), st.floats(0.02, 0.4))
def test_nothing_inside_the_promised_range_breaks_it(
    drawn_labels: list[tuple[int, float]], low: float, width: float
) -> None:
    counts = counts_of([round(n * share) for n, share in drawn_labels], [n for n, _ in drawn_labels])
    promised = RateInterval(low + width / 4.0, low, min(1.0, low + width), 0.95)
    found = check_promise(counts, promised, counts_more=False)
    assert found.verdict != "broken" or counts.rate > promised.high
    assert found.verdict != "better" or counts.rate < promised.low


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 20), st.integers(0, 9))
def test_more_events_speak_more_against_a_promise(n_labels: int, events: int) -> None:
    fewer = check_promise(counts_of([events] * n_labels, [10] * n_labels), PROMISED, counts_more=False)
    more = check_promise(counts_of([events + 1] * n_labels, [10] * n_labels), PROMISED, counts_more=False)
    assert more.p_not_worse <= fewer.p_not_worse + 1e-6


@pytest.mark.parametrize("counts", [even(0.6, 2), even(0.4, 2), even(0.2, 1)])
def test_so_many_more_labels_tell(counts: LabelCounts) -> None:
    found = check_promise(counts, PROMISED)
    assert (found.verdict, found.more_labels is not None) == ("unclear", True)
    n = counts.n_labels + (found.more_labels or 0)
    repeated = LabelCounts(np.resize(counts.events, n), np.resize(counts.trials, n))
    assert check_promise(repeated, PROMISED).verdict != "unclear"


def called_broken(truth: float, n_later: int, *, correlation: float = 0.4, as_trials: bool = False) -> float:
    """How often 100 promises are called broken; with `as_trials` each photo counts as a label of its own."""
    found = []
    for repetition in range(100):
        rng = np.random.default_rng([repetition, n_later])
        promised = rate_interval(drawn(rng, 15, 0.32, correlation))
        later = drawn(rng, n_later, truth, correlation)
        if as_trials:
            events = np.repeat(1, later.n_trials)
            events[later.n_events :] = 0
            later = LabelCounts(events, np.ones(later.n_trials, dtype=np.int64))
        found.append(check_promise(later, promised, counts_more=False).verdict == "broken")
    return float(np.mean(found))


@pytest.mark.slow
@pytest.mark.parametrize("n_later", [5, 15])
def test_a_kept_promise_is_rarely_called_broken_and_a_broken_one_often(n_later: int) -> None:
    """The benchmark has the figures; here within what 100 repetitions leave open."""
    assert called_broken(0.32, n_later) <= 0.06
    assert called_broken(0.69, n_later) >= 0.4


@pytest.mark.slow
def test_a_test_that_counts_photos_in_place_of_labels_is_noticed() -> None:
    """Negative control."""
    assert called_broken(0.32, 5, correlation=0.7) <= 0.06
    assert called_broken(0.32, 5, correlation=0.7, as_trials=True) > 0.06


def test_a_rate_with_its_own_interval_is_judged_as_one_of_labels() -> None:
    counts, promised = even(0.3, 40), RateInterval(0.1, 0.06, 0.16, 0.95)
    of_labels = check_promise(counts, promised)
    found = check_promise_by_interval(rate_interval(counts), promised, n=400)
    assert found.verdict == of_labels.verdict == "broken"
    assert found.measured.low == pytest.approx(of_labels.measured.low, abs=0.01)
    assert found.measured.high == pytest.approx(of_labels.measured.high, abs=0.01)


@pytest.mark.parametrize(
    ("rate", "verdict"), [(0.5, "broken"), (0.12, "held"), (0.02, "better"), (0.2, "unclear")]
)
def test_verdicts_by_an_interval(rate: float, verdict: str) -> None:
    promised = RateInterval(0.12, 0.08, 0.18, 0.95)
    found = RateInterval(rate, max(0.0, rate - 0.06), rate + 0.07, 0.95)
    if verdict == "better":
        found = RateInterval(rate, 0.01, 0.035, 0.95)
    assert check_promise_by_interval(found, promised, n=100).verdict == verdict


def test_so_many_more_answers_tell() -> None:
    promised, found = RateInterval(0.12, 0.08, 0.18, 0.95), RateInterval(0.21, 0.13, 0.3, 0.95)
    test = check_promise_by_interval(found, promised, n=100)
    assert test.verdict == "unclear"
    assert test.more_labels is not None
    later = found.widened(100 / (100 + test.more_labels))
    assert check_promise_by_interval(later, promised, n=100 + test.more_labels).verdict == "broken"
