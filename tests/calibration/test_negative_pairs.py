"""Negative pairs in bounded memory: every rate is that of all pairs, listed or not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import Target, TrialLabels, Trials, choose_threshold, operating_curve
from vicinal.calibration.consistency.opis import class_utilities
from vicinal.calibration.trials import NegativePairs

N_LABELS, N_QUERIES = 6, 40
NONE = np.empty(0)


def drawn_pairs(seed: int, n: int = 3000):
    """Scores with ties, and pairs of different labels."""
    rng = np.random.default_rng(seed)
    query_labels = rng.integers(0, N_LABELS, N_QUERIES).astype(np.uint8)
    queries = rng.integers(0, N_QUERIES, n)
    items = ((query_labels[queries] + rng.integers(1, N_LABELS, n)) % N_LABELS).astype(np.uint8)
    return np.round(rng.beta(2, 5, n), 3), query_labels, queries, items


def make_trials(seed: int, most_listed: int) -> Trials:
    scores, query_labels, queries, items = drawn_pairs(seed)
    collector = NegativePairs(query_labels, N_LABELS, most_listed=most_listed)
    for part in np.array_split(np.arange(len(scores)), 17):
        collector.add(scores[part], queries[part], items[part])
    found = collector.collected()
    mate_labels = np.repeat(np.arange(N_LABELS, dtype=np.uint8), 20)
    empty = np.empty(0, np.uint8)
    labels = TrialLabels(
        names=np.array([f"label {i}" for i in range(N_LABELS)], dtype=object),
        mates=mate_labels,
        non_mate_queries=query_labels[found.queries],
        non_mate_items=found.item_labels,
        best_mates=empty,
        without_mate=empty,
        answers=empty,
    )
    mates = np.random.default_rng(seed).beta(4, 3, len(mate_labels))
    return Trials(mates, found.scores, NONE, NONE, labels=labels, low_pairs=found.low)


def everything(seed: int) -> Trials:
    return make_trials(seed, 10**6)


def test_all_pairs_are_listed_where_they_fit() -> None:
    trials = everything(0)
    assert trials.low_pairs is None
    np.testing.assert_array_equal(np.sort(trials.non_mate_scores), np.sort(drawn_pairs(0)[0]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([300, 900, 2900]))
def test_the_highest_pairs_are_listed_and_none_is_forgotten(seed: int, most: int) -> None:
    trials = make_trials(seed, most)
    expected = np.sort(drawn_pairs(seed)[0])[::-1]
    assert trials.n_non_mates == len(expected)
    assert len(trials.non_mate_scores) <= most
    listed = np.sort(trials.non_mate_scores)[::-1]
    np.testing.assert_array_equal(listed, expected[: len(listed)])
    assert expected[len(listed)] < trials.low_pairs.ceiling


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.0, 1.0))
def test_false_accepts_are_exact_among_the_listed_and_never_too_few(seed: int, threshold: float) -> None:
    short, whole = make_trials(seed, 900), everything(seed)
    found, exact = (operating_curve(one, [threshold]).far[0] for one in (short, whole))
    if threshold >= short.low_pairs.ceiling:
        assert found == exact
    assert exact <= found <= operating_curve(whole, [threshold - 1 / 1024]).far[0]


@pytest.mark.parametrize("far", [0.01, 0.1, 0.2])
def test_a_far_among_the_listed_pairs_gets_the_threshold_of_all(far: float) -> None:
    target = Target(rate="far", value=far)
    assert choose_threshold(make_trials(1, 900), target) == choose_threshold(everything(1), target)


@pytest.mark.parametrize("far", [0.35, 0.5])
def test_a_far_below_the_listed_pairs_is_held_to_one_bin(far: float) -> None:
    threshold = choose_threshold(make_trials(1, 900), Target(rate="far", value=far))
    exact = choose_threshold(everything(1), Target(rate="far", value=far))
    assert exact <= threshold <= exact + 1 / 1024
    assert operating_curve(everything(1), [threshold]).far[0] <= far


def test_utilities_are_those_of_all_pairs() -> None:
    short, whole = (class_utilities(one) for one in (make_trials(5, 900), everything(5)))
    np.testing.assert_array_equal(short.utilities, whole.utilities)
    assert short.threshold_range == whole.threshold_range


def test_forgotten_low_pairs_would_be_noticed() -> None:
    """Negative control: without the counts FAR is that of the listed pairs alone."""
    trials = make_trials(2, 900)
    forgetful = dataclasses.replace(trials, low_pairs=None)
    at = [trials.low_pairs.ceiling]
    assert operating_curve(forgetful, at).far[0] > 2 * operating_curve(everything(2), at).far[0]


def test_pairs_that_are_all_tied_are_counted() -> None:
    codes = np.array([0, 1], dtype=np.uint8)
    collector = NegativePairs(codes, 2, most_listed=10)
    for _ in range(50):
        collector.add(np.full(2, 0.5), np.array([0, 1]), codes[::-1])
    found = collector.collected()
    assert (len(found.scores), found.low.n) == (0, 100)
    above = np.nextafter(np.float32(0.5), np.float32(1.0))
    assert found.low.reaching([0.5, above]).sum(axis=0).tolist() == [200, 0]


@pytest.mark.parametrize("most_listed", [10**6, 100])
def test_a_block_counts_like_its_pairs_but_for_what_is_no_pair(most_listed: int) -> None:
    rng = np.random.default_rng(4)
    query_labels, items = rng.integers(0, 3, 40).astype(np.uint8), rng.integers(3, 6, 30).astype(np.uint8)
    scores, is_pair = rng.random((40, 30)), rng.random((40, 30)) < 0.9
    by_block, by_pair = (NegativePairs(query_labels, N_LABELS, most_listed=most_listed) for _ in range(2))
    for start in range(0, 40, 8):
        rows = slice(start, start + 8)
        block = np.where(is_pair[rows], scores[rows], by_block.no_pair)
        by_block.add(block, np.arange(start, start + 8), items)
        queries, columns = np.nonzero(is_pair[rows])
        by_pair.add(scores[rows][is_pair[rows]], queries + start, items[columns])
    found, expected = by_block.collected(), by_pair.collected()
    for name in ("scores", "queries", "item_labels"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert (found.low is None) == (expected.low is None) == (most_listed > is_pair.sum())
    if found.low is not None and expected.low is not None:
        assert found.low.ceiling == expected.low.ceiling
        np.testing.assert_array_equal(found.low.counts, expected.low.counts)
        assert len(found.scores) + found.low.n == is_pair.sum()


def test_pairs_that_come_rising_are_listed_as_if_all_were_sorted() -> None:
    # The list is cut again and again, by a sample of it where that does and exactly where it does not.
    scores = np.linspace(0.0, 1.0, 50_000)
    codes = np.zeros(1, np.uint8)
    collector = NegativePairs(codes, 2, most_listed=4000)
    for part in np.array_split(scores, 40):
        collector.add(part, np.zeros(len(part), np.int64), np.ones(len(part), np.uint8))
    found = collector.collected()
    np.testing.assert_array_equal(found.scores, scores[-4000:])
    assert found.low.n == 46_000
    np.testing.assert_array_equal(collector.collected().low.counts, found.low.counts)
