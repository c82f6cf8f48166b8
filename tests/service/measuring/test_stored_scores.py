"""Stored scores: the same counts as the trials they were kept from, after a way over the disk too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import TrialLabels, Trials, label_counts
from vicinal.calibration.rates.label_counts import LabelCounts
from vicinal.calibration.trials import NegativePairs
from vicinal.service.measuring.records import record as record_module
from vicinal.service.measuring.records.record import StoredScores

RATES = ("far", "frr", "fpir", "fnir", "precision")


def make_trials(seed: int = 3, n_labels: int = 7, n: int = 400) -> Trials:
    """Scores on a coarse grid, so that many tie."""
    rng = np.random.default_rng(seed)

    def scores(low: float, high: float) -> np.ndarray:
        return np.round(rng.uniform(low, high, n), 2)

    def codes() -> np.ndarray:
        return rng.integers(0, n_labels, n).astype(np.uint8)

    queries = codes()
    return Trials(
        mate_scores=scores(0.3, 1.0),
        non_mate_scores=scores(0.0, 0.7),
        best_mate_scores=scores(0.4, 1.0),
        best_scores_without_mate=scores(0.1, 0.8),
        answer_scores=scores(0.0, 1.0),
        answer_is_mate=rng.random(n) < 0.7,
        labels=TrialLabels(
            names=np.array([f"größe {i}" for i in range(n_labels)], dtype=object),
            mates=codes(),
            non_mate_queries=queries,
            non_mate_items=((queries + 1) % n_labels).astype(np.uint8),
            best_mates=codes(),
            without_mate=codes(),
            answers=codes(),
        ),
    )


@pytest.fixture(scope="module")
def trials() -> Trials:
    return make_trials()


@pytest.fixture(scope="module")
def stored(trials: Trials) -> StoredScores:
    return StoredScores.from_bytes(StoredScores.of(trials, trials.best_mate_scores).to_bytes())


@pytest.fixture
def cut(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> StoredScores:
    """What is kept when no more than 50 scores of a kind may be."""
    monkeypatch.setattr(record_module, "_MOST_KEPT", 50)
    return StoredScores.of(trials, trials.best_mate_scores)


def as_tuple(counts: LabelCounts | None) -> object:
    return counts and (counts.events.tolist(), counts.trials.tolist(), counts.labels_per_trial)


@pytest.mark.parametrize("rate", RATES)
@settings(deadline=None, max_examples=25)
@given(threshold=st.one_of(st.integers(0, 100).map(lambda i: i / 100), st.floats(0, 1)))
def test_every_rate_is_counted_as_on_the_trials(
    trials: Trials, stored: StoredScores, rate: str, threshold: float
) -> None:
    assert as_tuple(stored.counts(rate, threshold)) == as_tuple(label_counts(trials, rate, threshold))


def test_the_archive_keeps_every_bit(trials: Trials, stored: StoredScores) -> None:
    again = StoredScores.from_bytes(stored.to_bytes())
    assert again.names.tolist() == trials.labels.names.tolist()
    np.testing.assert_array_equal(again.top_scores, trials.best_mate_scores, strict=True)
    np.testing.assert_array_equal(again.trials["far"].scores, trials.non_mate_scores, strict=True)


@pytest.mark.parametrize("rate", ["far", "frr", "precision"])
def test_a_cut_rate_is_exact_where_it_is_given_and_given_near_the_end_that_was_kept(
    trials: Trials, cut: StoredScores, rate: str
) -> None:
    grid = np.arange(0, 102) / 100
    given_at = [one for one in grid if cut.covers(rate, one)]
    assert 3 < len(given_at) < 60
    for threshold in given_at:
        assert as_tuple(cut.counts(rate, threshold)) == as_tuple(label_counts(trials, rate, threshold))
    assert cut.counts(rate, 0.0 if rate != "frr" else 1.0) is None


def test_pairs_that_a_calibration_only_counted_are_not_forgotten(trials: Trials) -> None:
    labels = trials.labels
    pairs = NegativePairs(labels.non_mate_queries, len(labels.names), most_listed=100)
    # Each pair has a query of its own.
    numbers = np.arange(len(trials.non_mate_scores))
    for rows in np.array_split(numbers, 8):
        pairs.add(trials.non_mate_scores[rows], rows, labels.non_mate_items[rows])
    listed = pairs.collected()
    bounded = replace(
        trials,
        non_mate_scores=listed.scores,
        low_pairs=listed.low,
        labels=replace(
            labels,
            non_mate_queries=labels.non_mate_queries[listed.queries],
            non_mate_items=listed.item_labels,
        ),
    )
    stored = StoredScores.of(bounded, trials.best_mate_scores)
    assert (stored.trials["far"].n, stored.trials["far"].is_whole) == (400, False)
    assert as_tuple(stored.counts("far", 0.66)) == as_tuple(label_counts(trials, "far", 0.66))
    assert stored.counts("far", 0.1) is None
