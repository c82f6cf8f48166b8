"""Guarantees: bounds that hold whatever labels are like."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vicinal.calibration import LabelCounts, Target, TrialLabels, Trials, choose_threshold
from vicinal.calibration.errors import NotEnoughLabelsError
from vicinal.calibration.rates.guarantees import (
    StrangerScores,
    expected_rate,
    labels_for_bound,
    safety_line,
    upper_bound,
)


def all_or_nothing(n_labels: int, n_events: int, size: int = 8) -> LabelCounts:
    return LabelCounts(size * (np.arange(n_labels) < n_events), np.full(n_labels, size))


@pytest.mark.parametrize(("n_labels", "n_events"), [(20, 0), (20, 1), (20, 20), (60, 3), (7, 2)])
def test_of_all_or_nothing_labels_the_safety_line_is_clopper_pearson(n_labels, n_events):
    low, high = safety_line(all_or_nothing(n_labels, n_events))
    exact = stats.binomtest(n_events, n_labels).proportion_ci(0.95, method="exact")
    assert low == pytest.approx(exact.low, abs=0.006)
    assert high == pytest.approx(exact.high, abs=0.006)


def test_weights_of_equal_labels_are_added_up_as_drawing_each_alone_would():
    counts = LabelCounts(np.array([0, 0, 0, 1, 4, 4]), np.array([5, 5, 5, 5, 9, 9]))
    rng = np.random.default_rng(3)
    sizes, events = (
        np.append(counts.trials, counts.trials.mean()),
        np.append(counts.events, counts.trials.mean()),
    )
    drawn = []
    for _ in range(10_000):
        weights = rng.exponential(size=7)
        drawn.append((weights * events).sum() / (weights * sizes).sum())
    assert upper_bound(counts, confidence=0.95) == pytest.approx(np.quantile(drawn, 0.95), abs=0.01)


def test_expected_rate_counts_one_label_more_that_always_has_the_event():
    counts = LabelCounts(np.array([0, 2, 10]), np.array([4, 4, 10]))
    assert expected_rate(counts) == pytest.approx((0.0 + 0.5 + 1.0 + 1.0) / 4)


def test_a_bound_of_five_percent_needs_59_labels():
    needed = labels_for_bound(0.05, confidence=0.95)
    assert needed == 59
    assert upper_bound(all_or_nothing(61, 0), confidence=0.95) <= 0.05
    assert upper_bound(all_or_nothing(56, 0), confidence=0.95) > 0.05


def test_one_label_more_of_twice_the_trials_counts_as_two():
    counts = all_or_nothing(30, 0)
    _, high = safety_line(counts, beside=2.0 * float(counts.trials[0]))
    drawn = np.random.default_rng(1).standard_gamma(1.0, (200_000, 2))
    others = np.random.default_rng(2).standard_gamma(30.0, 200_000)
    expected = np.quantile(2 * drawn[:, 0] / (2 * drawn[:, 0] + others), 0.975)
    assert high == pytest.approx(expected, abs=0.006)
    assert high > 1.6 * safety_line(counts)[1]


def strangers(n_labels: int, size: int = 6, seed: int = 0) -> Trials:
    """Queries without a mate and with one, by labels that differ."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_labels), size)
    scores = np.clip(0.5 + 0.1 * rng.normal(size=n_labels)[codes] + 0.1 * rng.normal(size=len(codes)), 0, 1)
    none = np.empty(0)
    labels = TrialLabels(
        names=np.array([str(i) for i in range(n_labels)], dtype=object),
        mates=none.astype(int),
        non_mate_queries=none.astype(int),
        non_mate_items=none.astype(int),
        best_mates=codes,
        without_mate=codes,
        answers=none.astype(int),
    )
    return Trials(
        mate_scores=none,
        non_mate_scores=none,
        best_mate_scores=1.0 - scores,
        best_scores_without_mate=scores,
        answer_scores=none,
        answer_is_mate=none.astype(bool),
        labels=labels,
    )


def bound_of(trials: Trials, threshold: float, sure: str) -> float:
    """Slow reference: the share of each label, one after the other."""
    codes, scores = trials.labels.without_mate, trials.best_scores_without_mate
    shares = np.array([(scores[codes == one] >= threshold).mean() for one in np.unique(codes)])
    if sure == "mean":
        return (shares.sum() + 1) / (len(shares) + 1)
    return upper_bound(LabelCounts(shares, np.ones(len(shares))), confidence=0.9)


@pytest.mark.parametrize(("n_labels", "sure"), [(40, "mean"), (80, "mean"), (80, "90%")])
def test_the_lowest_threshold_whose_bound_holds_is_chosen(n_labels: int, sure: str) -> None:
    trials, target = strangers(n_labels), Target.parse("fpir=5%", sure)
    threshold = choose_threshold(trials, target)
    assert bound_of(trials, threshold, sure) <= 0.05
    lower = trials.best_scores_without_mate[trials.best_scores_without_mate < threshold].max()
    assert bound_of(trials, lower, sure) > 0.05


def test_misses_are_held_by_the_highest_threshold() -> None:
    trials = strangers(40)
    threshold = choose_threshold(trials, Target.parse("fnir=10%", "mean"))
    as_strangers = choose_threshold(trials, Target.parse("fpir=10%", "mean"))
    assert threshold == pytest.approx(1.0 - as_strangers, abs=1e-9)


@pytest.mark.parametrize(("n_labels", "sure", "needed"), [(18, "mean", 19), (58, "95%", 59)])
def test_too_few_labels_are_refused_with_how_many_are_needed(n_labels: int, sure: str, needed: int) -> None:
    with pytest.raises(
        NotEnoughLabelsError, match=f"at least {needed} labels, this calibration has {n_labels}"
    ):
        choose_threshold(strangers(n_labels), Target.parse("fpir=5%", sure))


@pytest.mark.slow
@pytest.mark.parametrize("sure", ["mean", "95%"])
def test_a_sure_threshold_holds_what_unseen_labels_show(sure: str) -> None:
    """In the mean over new labels, or in so many of a hundred calibrations."""
    shown = []
    for seed in range(200):
        threshold = choose_threshold(strangers(60, seed=seed), Target.parse("fpir=10%", sure))
        shown.append((strangers(300, seed=10_000 + seed).best_scores_without_mate >= threshold).mean())
    held = np.array(shown) <= 0.1
    assert np.mean(shown) <= 0.1 if sure == "mean" else held.mean() >= 0.92


def test_p_value_is_the_share_of_labels_that_score_as_high() -> None:
    trials = strangers(30)
    codes, scores = trials.labels.without_mate, trials.best_scores_without_mate
    known = StrangerScores.of(scores, codes)
    for score in (0.0, 0.4, float(scores[7]), 0.6, 1.0):
        shares = [(scores[codes == one] >= score).mean() for one in range(30)]
        assert known.p_value(score) == pytest.approx((sum(shares) + 1) / 31)


def test_p_values_of_strangers_are_as_even_as_they_claim() -> None:
    """Of a new label's queries at most a share p gets a p-value of p or less, in the mean over labels."""
    found = []
    for seed in range(100):
        known = strangers(40, seed=seed)
        scores = StrangerScores.of(known.best_scores_without_mate, known.labels.without_mate)
        found += [
            scores.p_value(float(one)) for one in strangers(20, 1, seed + 5000).best_scores_without_mate
        ]
    for p in (0.05, 0.1, 0.3):
        assert np.mean(np.array(found) <= p) <= p + 0.02
