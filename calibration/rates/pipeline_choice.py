"""Pipeline choice: the error of several pipelines at one target, on the same queries and drawn labels.

What is compared is the other error: FNIR when FPIR is to be held, FPIR when FNIR is. Labels are drawn with
replacement, each with all of its queries, and for a target on searches the threshold is chosen anew in each
draw, so that a difference also shows how uncertain the thresholds are. Labels whose queries all have a mate,
all have none, or both, are drawn apart, so that no draw lacks a kind.

Whoever takes the best of many pipelines takes their luck too. How much, shows a split: the best on one half
of the labels is measured on the other half. Both halves are alike in the mean, so that a pipeline that was
named beforehand loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vicinal.calibration.errors import CalibrationError

__all__ = ["SearchScores", "SelectionSplit", "draw_labels", "selection_split", "split_labels"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

# Drawn numbers of queries held at a time.
_MOST_HELD = 2**22


@dataclass(frozen=True)
class SearchScores:
    """Scores of the searches of one pipeline; pipelines to compare have the same queries in the same order.

    Attributes:
        mates: (M,) best score with a mate, of each query with one.
        mate_labels: (M,) number of its label.
        others: (W,) best score of each query without a mate.
        other_labels: (W,) number of its label.
        threshold: Lowest accepted score on all queries.
        held: The error that the target holds, `fpir` or `fnir`, whose threshold is then chosen in each draw;
            None for another target, whose threshold stays.
        limit: Highest rate of the held error.
        asked: The other error, which is compared.
    """

    mates: Floats
    mate_labels: Numbers
    others: Floats
    other_labels: Numbers
    threshold: float
    held: Literal["fpir", "fnir"] | None
    limit: float
    asked: Literal["fpir", "fnir"]

    def errors(self, times: Counts) -> Floats:
        """(B,) the compared error when each label counts so often.

        Args:
            times: (B, L) how often.
        """
        return np.concatenate([self._errors(part) for part in self._parts(times)])

    def auroc(self, times: Counts) -> Floats:
        """(B,) how often a query with a mate scores above one without, ties half, for drawn labels.

        Args:
            times: (B, L) how often each label counts.
        """
        return np.concatenate([self._auroc(part) for part in self._parts(times)])

    def _parts(self, times: Counts) -> Iterator[Floats]:
        at_once = max(1, _MOST_HELD // max(1, len(self.mates) + len(self.others)))
        for start in range(0, len(times), at_once):
            yield times[start : start + at_once].astype(np.float64)

    def _errors(self, times: Floats) -> Floats:
        mates, others = times[:, self.mate_labels], times[:, self.other_labels]
        if self.held == "fpir":
            return _error_when_held((self.others, others), (self.mates, mates), self.limit)
        if self.held == "fnir":
            return _error_when_held((-self.mates, mates), (-self.others, others), self.limit)
        is_error = self.mates < self.threshold if self.asked == "fnir" else self.others >= self.threshold
        weights = mates if self.asked == "fnir" else others
        return np.asarray(weights @ is_error / weights.sum(axis=1))

    def _auroc(self, times: Floats) -> Floats:
        mates, others = times[:, self.mate_labels], times[:, self.other_labels]
        order = np.argsort(self.others, kind="stable")
        below = np.concatenate([np.zeros((len(times), 1)), others[:, order].cumsum(axis=1)], axis=1)
        ranked = self.others[order]
        wins = below[:, np.searchsorted(ranked, self.mates, "left")]
        wins = wins + below[:, np.searchsorted(ranked, self.mates, "right")]
        return np.asarray((mates * wins).sum(axis=1) / (2 * mates.sum(axis=1) * others.sum(axis=1)))


@dataclass(frozen=True)
class SelectionSplit:
    """What choosing the best of several pipelines promises too much.

    Attributes:
        promised: Error of the best on the labels that it was chosen on, mean over the splits.
        shown: Its error on the other labels.
        n_splits: Splits.
    """

    promised: float
    shown: float
    n_splits: int

    @property
    def optimism(self) -> float:
        """How much lower the error looked."""
        return self.shown - self.promised


def draw_labels(scores: SearchScores, n_draws: int, seed: int) -> Counts:
    """(B, L) how often each label is drawn.

    Args:
        scores: Of any of the pipelines.
        n_draws: Draws.
        seed: Seed of the draws.

    Raises:
        CalibrationError: There are no queries with a mate, or none without.
    """
    rng = np.random.default_rng(seed)
    strata, n_labels = _strata(scores)
    times = np.zeros((n_draws, n_labels), np.int64)
    for labels in strata:
        drawn = rng.multinomial(len(labels), np.full(len(labels), 1.0 / len(labels)), size=n_draws)
        times[:, labels] = drawn
    return times


def split_labels(scores: SearchScores, n_splits: int, seed: int) -> tuple[Counts, Counts] | None:
    """Both halves of random splits, (B, L) of 0 and 1; None where there are too few labels.

    Args:
        scores: Of any of the pipelines.
        n_splits: Splits.
        seed: Seed of the splits.

    Raises:
        CalibrationError: There are no queries with a mate, or none without.
    """
    rng = np.random.default_rng(seed)
    strata, n_labels = _strata(scores)
    if any(len(labels) < 2 for labels in strata):
        return None
    first = np.zeros((n_splits, n_labels), np.int64)
    for row in first:
        for labels in strata:
            # The odd label goes to either side.
            half = (len(labels) + int(rng.integers(2))) // 2
            row[rng.permutation(labels)[:half]] = 1
    second = np.zeros_like(first)
    second[:, np.concatenate(strata)] = 1 - first[:, np.concatenate(strata)]
    return first, second


def selection_split(first: Floats, second: Floats) -> SelectionSplit:
    """What choosing by one half promises too much.

    Args:
        first: (P, B) error of each pipeline on the half that it is chosen by; the first of equals is taken.
        second: (P, B) on the other half.
    """
    splits = np.arange(first.shape[1])
    chosen = first.argmin(axis=0)
    return SelectionSplit(
        float(first[chosen, splits].mean()), float(second[chosen, splits].mean()), first.shape[1]
    )


def _strata(scores: SearchScores) -> tuple[list[Numbers], int]:
    """Labels by the kinds of their queries."""
    if not len(scores.mates) or not len(scores.others):
        raise CalibrationError("pipelines are compared on queries with a mate and on queries without one")
    n_labels = int(max(scores.mate_labels.max(), scores.other_labels.max())) + 1
    has_mate = np.bincount(scores.mate_labels, minlength=n_labels) > 0
    has_none = np.bincount(scores.other_labels, minlength=n_labels) > 0
    kinds = (has_mate & has_none, has_mate & ~has_none, ~has_mate & has_none)
    return [np.flatnonzero(kind) for kind in kinds if kind.any()], n_labels


def _error_when_held(held: tuple[Floats, Floats], asked: tuple[Floats, Floats], limit: float) -> Floats:
    """(B,) share of the asked that the lowest bar rejects which at most a share of the held passes.

    A score passes when it is higher than the bar, which is one of the held scores.

    Args:
        held: (n,) scores and (B, n) weights.
        asked: (m,) scores and (B, m) weights.
        limit: Highest share of the held that may pass, in [0, 1).
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
