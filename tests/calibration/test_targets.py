"""Thresholds for a target: exact on their trials, refused where trials are too few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import CalibrationError, NotEnoughTrialsError, Target, Trials, choose_threshold

NONE = np.empty(0)


def negative_pairs(scores) -> Trials:
    return Trials(np.array([1.0]), np.asarray(scores, dtype=np.float64), NONE, NONE)


def slow_lowest_threshold(scores, rate):
    """Try every score and the float above it, from below."""
    tried = sorted({*scores, *(np.nextafter(score, np.inf) for score in scores)})
    return next(t for t in tried if np.mean([score >= t for score in scores]) <= rate)


@given(
    st.lists(st.integers(0, 6).map(lambda i: i / 7), min_size=12, max_size=60), st.sampled_from([0.25, 0.5])
)
def test_the_threshold_is_the_lowest_that_holds_the_rate(scores, rate) -> None:
    threshold = choose_threshold(negative_pairs(scores), Target(rate="far", value=rate))
    expected = slow_lowest_threshold(scores, rate)
    accepted = [score >= threshold for score in scores]
    assert accepted == [score >= expected for score in scores]


@given(st.lists(st.floats(0, 1, width=32), min_size=12, max_size=80), st.floats(0.25, 0.5))
def test_the_achieved_rate_never_passes_the_target(scores, rate) -> None:
    threshold = choose_threshold(negative_pairs(scores), Target(rate="far", value=rate))
    assert np.mean(np.asarray(scores) >= threshold) <= rate


def test_fpir_uses_queries_without_a_mate() -> None:
    without = np.linspace(0.0, 1.0, 101)
    trials = Trials(NONE, np.ones(10_000), NONE, without)
    assert choose_threshold(trials, Target(rate="fpir", value=0.05)) == pytest.approx(0.95)


def test_too_few_pairs_are_refused_with_the_rate_that_can_be_reached() -> None:
    with pytest.raises(NotEnoughTrialsError, match=r"at least 3,000 negative pairs.* has 100; .* is 0\.03"):
        choose_threshold(negative_pairs(np.zeros(100)), Target(rate="far", value=1e-3))


def test_no_trials_at_all_are_refused() -> None:
    with pytest.raises(NotEnoughTrialsError, match="this calibration has 0"):
        choose_threshold(negative_pairs([]), Target(rate="fpir", value=0.05))


@pytest.mark.parametrize(("text", "value"), [("far=0.001", 0.001), ("fpir=5%", 0.05), (" far = 1e-2 ", 0.01)])
def test_targets_are_read_from_text(text: str, value: float) -> None:
    assert Target.parse(text).value == pytest.approx(value)


@pytest.mark.parametrize("text", ["far", "far=", "far=0", "fpir=60%", "recall=0.1", "far=-1", "far=1e"])
def test_text_that_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(CalibrationError, match="is no target"):
        Target.parse(text)


@pytest.mark.parametrize(("text", "shown"), [("fpir=5%", "FPIR 5 %"), ("far=0.001", "FAR 0.1 %")])
def test_targets_are_shown_in_percent(text: str, shown: str) -> None:
    assert str(Target.parse(text)) == shown


@pytest.mark.parametrize(("rate", "n_accepted"), [(0.49999999999999994, 5), (0.5, 6), (0.35, 4)])
def test_rates_that_round_to_a_whole_number_of_trials_are_counted_exactly(
    rate: float, n_accepted: int
) -> None:
    scores = np.arange(12) / 12
    threshold = choose_threshold(negative_pairs(scores), Target(rate="far", value=rate))
    assert (scores >= threshold).sum() == n_accepted


def test_a_product_that_rounds_down_does_not_lose_a_trial() -> None:
    """0.29 times 100 is below 29 in floating point."""
    scores = np.arange(100) / 100
    threshold = choose_threshold(negative_pairs(scores), Target(rate="far", value=0.29))
    assert (scores >= threshold).sum() == 29
