"""Counts by label against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import (
    LabelCounts,
    TrialLabels,
    Trials,
    label_counts,
    operating_curve,
)

NAMES = np.array(["a", "b", "c", "d", "nobody"], dtype=object)


def counts(events, trials) -> LabelCounts:
    return LabelCounts(np.array(events), np.array(trials))


def labelled_trials(seed: int = 0) -> Trials:
    rng = np.random.default_rng(seed)
    queries = rng.integers(0, 4, 50)
    codes = {name: rng.integers(0, 4, 30) for name in ("mates", "best_mates", "without_mate", "answers")}
    items = (queries + rng.integers(1, 4, 50)) % 4
    labels = TrialLabels(NAMES, non_mate_queries=queries, non_mate_items=items, **codes)
    scores = (rng.random(n) for n in (30, 50, 30, 30, 30))
    return Trials(*scores, answer_is_mate=rng.random(30) < 0.5, labels=labels)


@settings(deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.3, 0.6]))
def test_counts_by_label_are_those_of_loops(seed: int, threshold: float) -> None:
    trials = labelled_trials(seed)
    events, totals = [], []
    for code in range(4):
        rows = [i for i in range(30) if trials.labels.without_mate[i] == code]
        if rows:
            events.append(sum(trials.best_scores_without_mate[i] >= threshold for i in rows))
            totals.append(len(rows))
    counted = label_counts(trials, "fpir", threshold)
    assert (counted.events.tolist(), counted.trials.tolist()) == (events, totals)


@pytest.mark.parametrize("rate", ["far", "frr", "fpir", "fnir"])
def test_the_rate_of_the_counts_is_that_of_the_curve(rate: str) -> None:
    trials = labelled_trials()
    expected = getattr(operating_curve(trials, [0.4]), rate)[0]
    assert label_counts(trials, rate, 0.4).rate == pytest.approx(expected)


def test_a_precision_counts_returned_matches_under_their_query() -> None:
    trials = labelled_trials()
    returned = trials.answer_scores >= 0.4
    counted = label_counts(trials, "precision", 0.4)
    assert counted.n_trials == returned.sum()
    assert counted.rate == trials.answer_is_mate[returned].mean()


def test_a_negative_pair_counts_under_both_of_its_labels() -> None:
    trials = labelled_trials()
    labels = trials.labels
    involved = [
        sum(code in (q, i) for q, i in zip(labels.non_mate_queries, labels.non_mate_items, strict=True))
        for code in range(4)
    ]
    counted = label_counts(trials, "far", 0.4)
    assert counted.trials.tolist() == involved
    assert counted.n_trials == 50


def test_leaving_one_label_out_shows_what_hangs_on_it() -> None:
    """By hand: 6 of 40 without label 0 are 1 of 30, and without label 1 are 5 of 10."""
    assert counts([5, 1], [10, 30]).leave_one_label_out == (1 / 30, 5 / 10)
    assert counts([5], [10]).leave_one_label_out == (0.5, 0.5)


def test_leaving_one_label_out_of_pairs_takes_out_all_of_its_pairs() -> None:
    first, second = np.array([0, 0, 1, 1]), np.array([1, 2, 2, 2])
    accepted = np.array([True, False, False, True])
    # Without 0: one of two pairs is left accepted; without 1: none of one; without 2: one of one.
    assert LabelCounts.of(accepted, first, second).leave_one_label_out == (0.0, 1.0)


@pytest.mark.parametrize(("trials", "expected"), [([10, 10, 10], 3.0), ([100, 1, 1], 102**2 / 10_002)])
def test_the_effective_number_of_labels_falls_with_uneven_sizes(trials, expected) -> None:
    assert counts([0, 0, 0], trials).effective_labels == pytest.approx(expected)
