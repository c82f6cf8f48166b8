"""Paired bootstrap: figures of several variants on the same queries, and how far a difference can be trusted.

A *figure* is a function of how often each label counts: called with ones it gives the figure as it was
measured, with labels drawn with replacement what it could have been. Each label is drawn with all of its
queries, because the queries of one label are alike (Davison and Hinkley, "Bootstrap Methods and their
Application", 1997, section 3.8), and every figure sees the same draws, so that what makes a query hard is in
both sides of a difference and cancels. Labels whose queries all have a mate, all have none, or both, are
drawn apart, so that no draw lacks a kind. Labels in which two variants agree widen nothing, and with few
labels the interval between percentiles is too short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.errors import CalibrationError

Figure = Callable[[Floats], Floats]

# Drawn numbers of queries held at a time.
_MOST_HELD = 2**22


def mean_figure(values: Floats, labels: Ints) -> Figure:
    """Mean of (n,) values over queries, such as 1 for a hit, with the (n,) numbers of their labels."""

    def figure(times: Floats) -> Floats:
        n_labels = times.shape[1]
        sums = np.bincount(labels, weights=values, minlength=n_labels)
        return np.asarray((times @ sums) / (times @ np.bincount(labels, minlength=n_labels)))

    return figure


def variance_figure(utilities: Floats, labels: Ints) -> Figure:
    """Variance across (N,) labels of their (N, T) utilities, averaged over thresholds, as OPIS is."""
    # Around the mean of all labels, so that squares are small and nothing is lost in their difference.
    centered = utilities - utilities.mean(axis=0)

    def figure(times: Floats) -> Floats:
        drawn = times[:, labels]
        total = np.maximum(drawn.sum(axis=1, keepdims=True), 1.0)
        return np.asarray((drawn @ centered**2 / total - (drawn @ centered / total) ** 2).mean(axis=1))

    return figure


@dataclass(frozen=True)
class Searches:
    """Scores of the searches of one variant; those to compare have the same queries in the same order."""

    mates: Floats  # (M,) best score with a mate, of each query with one
    mate_labels: Ints  # (M,) number of its label
    others: Floats  # (W,) best score of each query without a mate
    other_labels: Ints  # (W,) number of its label

    def fnir(self, threshold: float) -> Figure:
        """Share of the queries with a mate of which none reaches a threshold."""
        return mean_figure((self.mates < threshold).astype(np.float64), self.mate_labels)

    def fpir(self, threshold: float) -> Figure:
        """Share of the queries without a mate that get any match at a threshold."""
        return mean_figure((self.others >= threshold).astype(np.float64), self.other_labels)

    def error_when_held(self, held: Literal["fpir", "fnir"], limit: float) -> Figure:
        """FNIR while an FPIR is held to a limit, or the other way round; each draw chooses its threshold."""

        def figure(times: Floats) -> Floats:
            mates, others = times[:, self.mate_labels], times[:, self.other_labels]
            if held == "fpir":
                return _error_when_held((self.others, others), (self.mates, mates), limit)
            return _error_when_held((-self.mates, mates), (-self.others, others), limit)

        return figure

    def auroc(self, times: Floats) -> Floats:
        """(B,) how often a query with a mate scores above one without, ties half, for (B, L) drawn labels."""
        mates, others = times[:, self.mate_labels], times[:, self.other_labels]
        order = np.argsort(self.others, kind="stable")
        below = np.concatenate([np.zeros((len(times), 1)), others[:, order].cumsum(axis=1)], axis=1)
        ranked = self.others[order]
        wins = below[:, np.searchsorted(ranked, self.mates, "left")]
        wins = wins + below[:, np.searchsorted(ranked, self.mates, "right")]
        return np.asarray((mates * wins).sum(axis=1) / (2 * mates.sum(axis=1) * others.sum(axis=1)))


@dataclass(frozen=True)
class FigureChange:
    """Figure of one of several variants, and its difference to the first's with an interval over labels."""

    value: float
    difference: float
    low: float
    high: float


class LabelDraws:
    """Labels drawn for figures of the same queries, (M,) with a mate and (W,) others."""

    def __init__(self, mate_labels: Ints, other_labels: Ints, seed: int) -> None:
        counted = np.concatenate([mate_labels, other_labels])
        if not len(counted):
            raise CalibrationError("there are no queries to compare by: give at least one with a label")
        self.n_labels = int(counted.max()) + 1
        has_mate, has_none = (
            np.bincount(labels, minlength=self.n_labels) > 0 for labels in (mate_labels, other_labels)
        )
        kinds = (has_mate & has_none, has_mate & ~has_none, ~has_mate & has_none)
        self._kinds = [np.flatnonzero(kind) for kind in kinds if kind.any()]
        self._at_once = max(1, _MOST_HELD // max(len(counted), self.n_labels))
        self._seed = seed

    def measured(self, figures: Sequence[Figure]) -> Floats:
        """(F,) the figures as they were measured."""
        return self._values(figures, iter([np.ones((1, self.n_labels))]))[:, 0]

    def drawn(self, figures: Sequence[Figure], n_draws: int = 2000) -> Floats:
        """(F, B) the figures on labels drawn with replacement, the same for all."""
        return self._values(figures, self._draws(n_draws))

    def changes(self, figures: Sequence[Figure]) -> list[FigureChange]:
        """The figures beside the first, on the same drawn labels; intervals hold 95 % for all together."""
        measured, drawn = self.measured(figures), self.drawn(figures)
        share = 0.025 / max(1, len(figures) - 1)
        ends = [np.quantile(one - drawn[0], [share, 1.0 - share]) for one in drawn]
        return [
            FigureChange(float(value), float(value - measured[0]), float(low), float(high))
            for value, (low, high) in zip(measured, ends, strict=True)
        ]

    def _values(self, figures: Sequence[Figure], parts: Iterator[Floats]) -> Floats:
        return np.concatenate([np.stack([figure(times) for figure in figures]) for times in parts], axis=1)

    def _draws(self, n_draws: int) -> Iterator[Floats]:
        rng = np.random.default_rng(self._seed)
        for start in range(0, n_draws, self._at_once):
            times = np.zeros((min(self._at_once, n_draws - start), self.n_labels))
            for labels in self._kinds:
                shares = np.full(len(labels), 1.0 / len(labels))
                times[:, labels] = rng.multinomial(len(labels), shares, size=len(times))
            yield times


def paired_interval(present: Floats, other: Floats) -> tuple[float, float]:
    """95 % interval of other - present: (B,) figures of two variants on the same drawn labels."""
    low, high = np.quantile(other - present, [0.025, 0.975])
    return float(low), float(high)


def _error_when_held(held: tuple[Floats, Floats], asked: tuple[Floats, Floats], limit: float) -> Floats:
    """(B,) share of the asked that the lowest bar rejects which at most a share of the held passes.

    A score passes when it is higher than the bar, which is one of the held scores; both are (n,) scores with
    (B, n) weights.
    """
    distinct, inverse = np.unique(-held[0], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(len(distinct)))
    passing = np.add.reduceat(held[1][:, order], starts, axis=1).cumsum(axis=1)
    # Weights are whole numbers, their shares of a total are not.
    allowed = limit * passing[:, -1:] * (1 + 1e-12)
    bars = -distinct[(passing > allowed).argmax(axis=1)]
    ranked = np.argsort(asked[0], kind="stable")
    rejected = np.concatenate([np.zeros((len(bars), 1)), asked[1][:, ranked].cumsum(axis=1)], axis=1)
    places = np.searchsorted(asked[0][ranked], bars, side="right")
    return np.asarray(rejected[np.arange(len(bars)), places] / rejected[:, -1])
