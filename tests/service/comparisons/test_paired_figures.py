"""Comparison figures: the same as going through the queries one by one."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.service.comparisons.compared_version import QueryOutcomes, average_precisions
from vicinal.service.comparisons.paired_figures import count_flips, fnir_figure, retrieval_figures
from vicinal.service.comparisons.version_sample import ComparisonSample

N = 90


def draw_outcomes(seed: int) -> QueryOutcomes:
    """What a version could have found for queries of 8 labels, some without any item."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 40, N)
    best = np.array([f"item {place}" for place in places], dtype=object)
    labels = np.array([None if place % 9 == 8 else f"label {place % 9}" for place in places], dtype=object)
    scores, nothing = rng.random(N), rng.random(N) < 0.05
    scores[nothing], best[nothing], labels[nothing] = -np.inf, None, None
    return QueryOutcomes(
        best=best,
        best_labels=labels,
        scores=scores,
        n_mates=rng.integers(0, 4, N),
        mate_scores=np.where(rng.random(N) < 0.2, -np.inf, rng.random(N)),
        average_precisions=rng.random(N),
    )


@pytest.fixture
def old() -> QueryOutcomes:
    return draw_outcomes(1)


@pytest.fixture
def new() -> QueryOutcomes:
    return draw_outcomes(2)


@pytest.fixture
def sample() -> ComparisonSample:
    """Queries of 8 labels; some have none, and some another one in the new version."""
    rng = np.random.default_rng(3)
    labels = np.array([f"label {one}" for one in rng.integers(0, 8, N)], dtype=object)
    labels[rng.random(N) < 0.1] = None
    other = labels.copy()
    other[rng.random(N) < 0.1] = "label 0"
    places = np.arange(N)
    return ComparisonSample(
        np.array([f"item {i}" for i in places], dtype=object), places, places, labels, other
    )


def counted(old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample) -> list[int]:
    return [
        row
        for row in range(N)
        if sample.old_labels[row] is not None
        and sample.old_labels[row] == sample.new_labels[row]
        and old.n_mates[row] > 0
        and new.n_mates[row] > 0
    ]


def test_hit_rate_and_map_at_r_are_means_over_queries_with_mates(
    old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample
) -> None:
    rows = counted(old, new, sample)
    hit_rate, map_at_r = retrieval_figures(old, new, sample, seed=0)
    expected = [sum(one.best_labels[row] == sample.new_labels[row] for row in rows) for one in (old, new)]
    assert (hit_rate.old, hit_rate.new) == pytest.approx(tuple(n / len(rows) for n in expected))
    assert map_at_r.new == pytest.approx(sum(new.average_precisions[row] for row in rows) / len(rows))
    assert (hit_rate.n_queries, hit_rate.n_labels) == (
        len(rows),
        len({sample.new_labels[row] for row in rows}),
    )
    assert hit_rate.low <= hit_rate.difference <= hit_rate.high


def test_fnir_is_counted_at_each_version_s_own_threshold(
    old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample
) -> None:
    rows = counted(old, new, sample)
    found = fnir_figure(old, new, sample, (0.3, 0.7), seed=0)
    assert found.old == pytest.approx(sum(old.mate_scores[row] < 0.3 for row in rows) / len(rows))
    assert found.new == pytest.approx(sum(new.mate_scores[row] < 0.7 for row in rows) / len(rows))


def test_without_labels_there_are_no_rates(old: QueryOutcomes, new: QueryOutcomes) -> None:
    none, places = np.full(N, None, dtype=object), np.arange(N)
    unlabelled = ComparisonSample(np.array(["x"] * N, dtype=object), places, places, none, none)
    assert retrieval_figures(old, new, unlabelled, seed=0) == (None, None)
    assert fnir_figure(old, new, unlabelled, (0.5, 0.5), seed=0) is None
    assert len(set(unlabelled.label_codes.tolist())) == N


def test_flips_are_those_of_going_through_the_queries(
    old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample
) -> None:
    to_match = to_no_match = other_best = other_label = flipped = 0
    for row in range(N):
        before, after = old.scores[row] >= 0.4, new.scores[row] >= 0.6
        if before and not after:
            to_no_match += 1
        elif after and not before:
            to_match += 1
        elif before and after and old.best[row] != new.best[row]:
            other_best += 1
            labels = {old.best_labels[row], new.best_labels[row]}
            other_label += len(labels) == 2 or None in labels
        else:
            continue
        flipped += before != after or len(labels) == 2 or None in labels
    found = count_flips(old, new, sample.label_codes, (0.4, 0.6))
    assert (found.to_match, found.to_no_match) == (to_match, to_no_match)
    assert (found.other_best, found.other_label) == (other_best, other_label)
    assert found.flipped.rate == pytest.approx(flipped / N)
    assert min(to_match, to_no_match, other_label, other_best - other_label) > 0


def test_nothing_flips_between_a_version_and_itself(old: QueryOutcomes, sample: ComparisonSample) -> None:
    found = count_flips(old, old, sample.label_codes, (0.5, 0.5))
    assert (found.flipped.rate, found.other_best) == (0.0, 0)
    # That nothing was seen does not mean that nothing can be.
    assert found.flipped.high > 0.01


def test_average_precisions_are_those_of_going_down_the_ranks() -> None:
    rng = np.random.default_rng(5)
    is_mate, n_mates = rng.random((40, 12)) < 0.4, rng.integers(0, 20, 40)
    found = average_precisions(is_mate, n_mates)
    for row in range(40):
        cut, hits, total = min(int(n_mates[row]), 12), 0, 0.0
        for rank in range(cut):
            if is_mate[row, rank]:
                hits += 1
                total += hits / (rank + 1)
        assert found[row] == pytest.approx(total / cut if cut else 0.0)
