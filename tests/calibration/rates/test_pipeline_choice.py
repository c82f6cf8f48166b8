"""Pipeline choice: errors at a target for drawn labels, and what choosing the best promises too much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.pipeline_choice import SearchScores, draw_labels, selection_split, split_labels
from vicinal.calibration.targets import Target, choose_threshold
from vicinal.calibration.trials import Trials

N_LABELS = 12


def searches(
    seed: int = 0, held: str | None = "fpir", limit: float = 0.15, *, digits: int = 2
) -> SearchScores:
    """Rounded scores, so that there are ties; labels of different sizes."""
    rng = np.random.default_rng(seed)
    mate_labels = np.concatenate([np.arange(N_LABELS), rng.integers(0, N_LABELS, 60)])
    other_labels = np.concatenate([np.arange(N_LABELS), rng.integers(0, N_LABELS, 50)])
    return SearchScores(
        mates=np.round(rng.beta(4, 3, len(mate_labels)), digits),
        mate_labels=mate_labels,
        others=np.round(rng.beta(3, 4, len(other_labels)), digits),
        other_labels=other_labels,
        threshold=0.6,
        held=held,
        limit=limit,
        asked="fpir" if held == "fnir" else "fnir",
    )


def repeated(values: np.ndarray, labels: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.array([value for value, label in zip(values, labels, strict=True) for _ in range(times[label])])


def slow_error(scores: SearchScores, times: np.ndarray) -> float:
    """Write every drawn query out, choose the threshold as a calibration does, and count."""
    mates = repeated(scores.mates, scores.mate_labels, times)
    others = repeated(scores.others, scores.other_labels, times)
    none = np.empty(0)
    threshold = scores.threshold
    if scores.held is not None:
        target = Target(rate=scores.held, value=scores.limit)
        threshold = choose_threshold(Trials(none, none, mates, others), target)
    if scores.asked == "fnir":
        return sum(one < threshold for one in mates) / len(mates)
    return sum(one >= threshold for one in others) / len(others)


def slow_auroc(scores: SearchScores, times: np.ndarray) -> float:
    mates = repeated(scores.mates, scores.mate_labels, times)
    others = repeated(scores.others, scores.other_labels, times)
    wins = sum((m > o) + 0.5 * (m == o) for m in mates for o in others)
    return wins / (len(mates) * len(others))


@pytest.mark.parametrize("held", ["fpir", "fnir", None])
@pytest.mark.parametrize("limit", [0.1, 0.3])
def test_errors_are_those_of_queries_written_out(held: str | None, limit: float) -> None:
    scores = searches(1, held, limit)
    times = draw_labels(scores, 12, seed=3)
    expected = [slow_error(scores, row) for row in times]
    assert scores.errors(times) == pytest.approx(expected)


def test_errors_at_a_threshold_that_is_not_chosen_anew_are_others() -> None:
    scores = searches(1)
    times = draw_labels(scores, 12, seed=3)
    kept = replace(scores, held=None).errors(times)
    expected = [slow_error(scores, row) for row in times]
    assert kept != pytest.approx(expected)


def test_auroc_is_that_of_queries_written_out() -> None:
    scores = searches(2)
    times = draw_labels(scores, 6, seed=4)
    assert scores.auroc(times) == pytest.approx([slow_auroc(scores, row) for row in times])


def test_draws_take_whole_labels_and_keep_each_kind() -> None:
    scores = searches(3)
    apart = replace(scores, other_labels=scores.other_labels + N_LABELS)
    times = draw_labels(apart, 200, seed=0)
    assert times.shape == (200, 2 * N_LABELS)
    assert (times[:, :N_LABELS].sum(axis=1) == N_LABELS).all()
    assert (times[:, N_LABELS:].sum(axis=1) == N_LABELS).all()
    assert times.max() > 1


def test_halves_have_no_label_in_common_and_lack_none() -> None:
    first, second = split_labels(searches(4), 50, seed=0)
    assert (first + second == 1).all()
    assert {int(one) for one in first.sum(axis=1)} == {N_LABELS // 2}


def test_a_single_label_cannot_be_split() -> None:
    scores = searches(5)
    alone = replace(scores, mate_labels=np.zeros_like(scores.mate_labels) + N_LABELS)
    assert split_labels(alone, 5, seed=0) is None


def test_without_a_kind_of_queries_there_is_nothing_to_compare() -> None:
    with pytest.raises(CalibrationError, match="queries without one"):
        draw_labels(replace(searches(), others=np.empty(0), other_labels=np.empty(0, np.int64)), 5, seed=0)


def equal_pipelines(n: int) -> list[SearchScores]:
    """Pipelines that are equally good and differ by chance alone."""
    rng = np.random.default_rng(9)
    base = searches(6, digits=9)
    noise = ((base.mates, 0.15), (base.others, 0.15))
    return [
        replace(base, mates=noise[0][0] + rng.normal(0, 0.15, len(base.mates)),
                others=noise[1][0] + rng.normal(0, 0.15, len(base.others)))
        for _ in range(n)
    ]  # fmt: skip


def test_the_best_of_many_equal_pipelines_promises_too_much_and_a_named_one_does_not() -> None:
    pipelines = equal_pipelines(20)
    halves = split_labels(pipelines[0], 400, seed=1)
    first, second = (np.stack([one.errors(half) for one in pipelines]) for half in halves)
    assert selection_split(first, second).optimism > 0.04
    assert abs(selection_split(first[:1], second[:1]).optimism) < 0.02
