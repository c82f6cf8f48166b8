"""Paired bootstrap: the same as drawing labels one by one, and what choosing the best promises too much."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration.rates.paired_bootstrap import (
    Figure,
    LabelDraws,
    Searches,
    mean_figure,
    paired_interval,
    variance_figure,
)
from vicinal.calibration.targets import Target, choose_threshold
from vicinal.calibration.trials import Trials

N_LABELS = 12
NONE = np.empty(0, np.int64)


@pytest.fixture
def queries() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hits of 120 queries of 12 labels before and after, labels of unequal sizes."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(12), rng.integers(0, 12, 108)])
    easy = rng.random(12)[labels]
    old, new = ((rng.random(120) < easy).astype(float) for _ in range(2))
    return old, new, labels


def interval(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray, *, seed: int = 0, n_draws: int = 2000
) -> tuple[float, float]:
    draws = LabelDraws(labels, NONE, seed)
    return paired_interval(*draws.drawn([mean_figure(old, labels), mean_figure(new, labels)], n_draws))


def draw_labels_one_by_one(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray, n_draws: int
) -> tuple[float, float]:
    """The slow, obvious way, with draws of its own."""
    rng = np.random.default_rng(99)
    names, found = np.unique(labels), []
    for _ in range(n_draws):
        rows = np.concatenate([np.flatnonzero(labels == name) for name in rng.choice(names, len(names))])
        found.append(new[rows].mean() - old[rows].mean())
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def test_the_interval_is_that_of_labels_drawn_one_by_one(queries: tuple[np.ndarray, ...]) -> None:
    expected = draw_labels_one_by_one(*queries, n_draws=4000)
    assert interval(*queries, n_draws=20_000) == pytest.approx(expected, abs=0.02)


def test_drawing_queries_in_place_of_labels_would_be_noticed() -> None:
    """With labels that are all or nothing the interval of single queries is several times shorter."""
    labels = np.repeat(np.arange(10), 40)
    old, new = np.zeros(400), np.repeat([1.0, 0.0] * 5, 40)
    low, high = draw_labels_one_by_one(old, new, labels, 4000)
    wrong = interval(old, new, np.arange(400))
    assert interval(old, new, labels)[1] == pytest.approx(high, abs=0.1)
    assert wrong[1] - wrong[0] < 0.5 * (high - low)


def test_the_same_seed_gives_the_same_interval(queries: tuple[np.ndarray, ...]) -> None:
    assert interval(*queries, seed=3) == interval(*queries, seed=3)
    assert interval(*queries, seed=3) != interval(*queries, seed=4)


def test_variances_are_those_of_labels_drawn_one_by_one() -> None:
    rng = np.random.default_rng(1)
    old, new, labels = rng.random((9, 5)), 0.5 * rng.random((9, 5)), np.arange(9)
    expected = []
    for _ in range(4000):
        rows = rng.integers(0, 9, 9)
        expected.append(new[rows].var(axis=0).mean() - old[rows].var(axis=0).mean())
    draws, figures = LabelDraws(labels, NONE, 0), [variance_figure(one, labels) for one in (old, new)]
    found = paired_interval(*draws.drawn(figures, 20_000))
    assert found == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])), abs=0.006)
    assert draws.measured(figures) == pytest.approx([one.var(axis=0).mean() for one in (old, new)])


def searches(seed: int = 0, *, digits: int = 2) -> Searches:
    """Rounded scores, so that there are ties; labels of different sizes."""
    rng = np.random.default_rng(seed)
    mate_labels = np.concatenate([np.arange(N_LABELS), rng.integers(0, N_LABELS, 60)])
    other_labels = np.concatenate([np.arange(N_LABELS), rng.integers(0, N_LABELS, 50)])
    return Searches(
        mates=np.round(rng.beta(4, 3, len(mate_labels)), digits),
        mate_labels=mate_labels,
        others=np.round(rng.beta(3, 4, len(other_labels)), digits),
        other_labels=other_labels,
    )


def draws_of(one: Searches, seed: int) -> LabelDraws:
    return LabelDraws(one.mate_labels, one.other_labels, seed)


def slow_draws(one: Searches, n: int, seed: int, slow: object) -> list[float]:
    """The same draws, with every drawn query written out."""
    times: list[np.ndarray] = []

    def noted(drawn: np.ndarray) -> np.ndarray:
        times.extend(drawn.astype(int))
        return np.zeros(len(drawn))

    draws_of(one, seed).drawn([noted], n)
    return [slow(*(repeated(scores, labels, row) for scores, labels in kinds(one))) for row in times]


def kinds(one: Searches) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(one.mates, one.mate_labels), (one.others, one.other_labels)]


def repeated(values: np.ndarray, labels: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.array([value for value, label in zip(values, labels, strict=True) for _ in range(times[label])])


@pytest.mark.parametrize("held", ["fpir", "fnir"])
@pytest.mark.parametrize("limit", [0.1, 0.3])
def test_errors_at_a_target_are_those_of_queries_written_out(held: str, limit: float) -> None:
    one, none = searches(1), np.empty(0)

    def slow(mates: np.ndarray, others: np.ndarray) -> float:
        threshold = choose_threshold(Trials(none, none, mates, others), Target(rate=held, value=limit))
        wrong = mates < threshold if held == "fpir" else others >= threshold
        return float(wrong.mean())

    found = draws_of(one, 3).drawn([one.error_when_held(held, limit)], 12)[0]
    assert found == pytest.approx(slow_draws(one, 12, 3, slow))


def test_errors_at_a_given_threshold_are_those_of_queries_written_out() -> None:
    one = searches(1)
    fnir, fpir = draws_of(one, 3).drawn([one.fnir(0.6), one.fpir(0.6)], 12)
    assert fnir == pytest.approx(slow_draws(one, 12, 3, lambda mates, _: float((mates < 0.6).mean())))
    assert fpir == pytest.approx(slow_draws(one, 12, 3, lambda _, others: float((others >= 0.6).mean())))
    assert fnir != pytest.approx(draws_of(one, 3).drawn([one.error_when_held("fpir", 0.1)], 12)[0])


def test_auroc_is_that_of_queries_written_out() -> None:
    one = searches(2)

    def slow(mates: np.ndarray, others: np.ndarray) -> float:
        wins = sum((m > o) + 0.5 * (m == o) for m in mates for o in others)
        return float(wins / (len(mates) * len(others)))

    assert draws_of(one, 4).drawn([one.auroc], 6)[0] == pytest.approx(slow_draws(one, 6, 4, slow))


def times_of(draws: LabelDraws, n: int) -> np.ndarray:
    """(n, L) how often each label is drawn, read through figures of one label each."""
    figures: list[Figure] = [lambda times, i=i: times[:, i] for i in range(draws.n_labels)]
    return draws.drawn(figures, n).T


def test_draws_take_whole_labels_and_keep_each_kind() -> None:
    one = searches(3)
    times = times_of(LabelDraws(one.mate_labels, one.other_labels + N_LABELS, 0), 200)
    assert times.shape == (200, 2 * N_LABELS)
    assert (times[:, :N_LABELS].sum(axis=1) == N_LABELS).all()
    assert (times[:, N_LABELS:].sum(axis=1) == N_LABELS).all()
    assert times.max() > 1
