"""Figures of a comparison: the same as going through the queries one by one."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration import Target
from vicinal.service.comparing.figures import (
    Answers,
    ComparedSearches,
    Outcomes,
    count_flips,
)

N = 90


def draw_answers(rng: np.random.Generator) -> Answers:
    """What a variant could have found for queries of 8 labels, some without any item."""
    places = rng.integers(0, 40, N)
    best = np.array([f"item {place}" for place in places], dtype=object)
    labels = np.array([None if place % 9 == 8 else f"label {place % 9}" for place in places], dtype=object)
    scores, nothing = rng.random(N), rng.random(N) < 0.05
    scores[nothing], best[nothing], labels[nothing] = -np.inf, None, None
    return Answers(best, labels, scores)


def draw_outcomes(seed: int, threshold: float | None = 0.5) -> Outcomes:
    rng = np.random.default_rng(seed)
    return Outcomes(
        answers=draw_answers(rng),
        has_mate=rng.random(N) < 0.8,
        mate_scores=rng.random(N),
        hits=(rng.random(N) < 0.5).astype(float),
        precisions=rng.random(N),
        has_none=rng.random(N) < 0.9,
        other_scores=0.8 * rng.random(N),
        opis=None,
        threshold=threshold,
        holds=threshold,
    )


@pytest.fixture
def present() -> Outcomes:
    return draw_outcomes(1, 0.3)


@pytest.fixture
def other() -> Outcomes:
    return draw_outcomes(2, 0.7)


@pytest.fixture
def labels() -> np.ndarray:
    return np.array([f"label {one}" for one in np.random.default_rng(3).integers(0, 8, N)], dtype=object)


def test_rates_are_means_over_queries_with_mates_in_every_variant(
    present: Outcomes, other: Outcomes, labels: np.ndarray
) -> None:
    rows = [i for i in range(N) if present.has_mate[i] and other.has_mate[i]]
    compared = ComparedSearches([present, other], labels, None, seed=0)
    found = compared.figures()
    assert int(compared.mates.sum()) == len(rows)
    for one, figures in zip((present, other), found, strict=True):
        assert figures["hit_rate"].value == pytest.approx(sum(one.hits[i] for i in rows) / len(rows))
        assert figures["map_at_r"].value == pytest.approx(sum(one.precisions[i] for i in rows) / len(rows))
        missed = sum(one.mate_scores[i] < one.threshold for i in rows)
        assert figures["fnir"].value == pytest.approx(missed / len(rows))
    change = found[1]["hit_rate"]
    assert change.difference == pytest.approx(change.value - found[0]["hit_rate"].value)
    assert change.low <= change.difference <= change.high


def test_false_matches_are_counted_where_every_variant_searched_without_a_mate(
    present: Outcomes, other: Outcomes, labels: np.ndarray
) -> None:
    rows = [i for i in range(N) if present.has_none[i] and other.has_none[i]]
    found = ComparedSearches([present, other], labels, None, seed=0).figures()[1]["fpir"]
    assert found.value == pytest.approx(sum(other.other_scores[i] >= 0.7 for i in rows) / len(rows))


def test_a_target_on_pairs_takes_the_thresholds_as_given(
    present: Outcomes, other: Outcomes, labels: np.ndarray
) -> None:
    found = ComparedSearches([present, other], labels, Target.parse("far=10%"), seed=0).figures()
    assert [one["error"] for one in found] == [one["fnir"] for one in found]


def test_flips_are_those_of_going_through_the_queries(labels: np.ndarray) -> None:
    old, new = (draw_answers(np.random.default_rng(seed)) for seed in (4, 5))
    to_match = to_no_match = other_best = other_label = flipped = 0
    for row in range(N):
        before, after = old.scores[row] >= 0.4, new.scores[row] >= 0.6
        if before and not after:
            to_no_match += 1
        elif after and not before:
            to_match += 1
        elif before and after and old.ids[row] != new.ids[row]:
            other_best += 1
            named = {old.labels[row], new.labels[row]}
            other_label += len(named) == 2 or None in named
        else:
            continue
        flipped += before != after or len(named) == 2 or None in named
    found = count_flips(old, new, labels, (0.4, 0.6))
    assert (found.to_match, found.to_no_match) == (to_match, to_no_match)
    assert (found.other_best, found.other_label) == (other_best, other_label)
    assert found.flipped.rate == pytest.approx(flipped / N)
    assert min(to_match, to_no_match, other_label, other_best - other_label) > 0
