"""Trials: the scores that a calibration counts, the labels behind them, and rates over the threshold.

Negative pairs are held in bounded memory. A thousand queries against a hundred thousand items make a hundred
million of them. What a threshold is chosen by are the highest, and these are listed exactly: score, query and
label of the item. Every pair below is counted too, by label and by score in even bins of [0, 1], so that no
rate forgets one. At thresholds down to the lowest listed score all rates are exact; below, a bin that the
threshold cuts counts as reached, which makes rates of acceptance too high by at most the share of that bin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vicinal.calibration.errors import CalibrationError

__all__ = [
    "ListedPairs",
    "LowPairs",
    "NegativePairs",
    "OperatingCurve",
    "TrialLabels",
    "Trials",
    "operating_curve",
    "rate_at_or_above",
]

Floats = npt.NDArray[np.float64]
# Label numbers in the smallest unsigned type that holds them: there can be ten million pairs.
Codes = npt.NDArray[np.unsignedinteger]


def _no_scores() -> Floats:
    return np.empty(0, dtype=np.float64)


def _no_flags() -> npt.NDArray[np.bool_]:
    return np.empty(0, dtype=np.bool_)


@dataclass(frozen=True)
class TrialLabels:
    """Label of each trial, as its position in `names`; the arrays are parallel to those of `Trials`.

    Attributes:
        names: (L,) labels of queries and items.
        mates: Label that both members of a positive pair have.
        non_mate_queries: Label of the query of each negative pair.
        non_mate_items: Label of its item.
        best_mates: Label of each query with a mate.
        without_mate: Label of each query without a mate.
        answers: Label of the query of each candidate.
    """

    names: npt.NDArray[np.object_]
    mates: Codes
    non_mate_queries: Codes
    non_mate_items: Codes
    best_mates: Codes
    without_mate: Codes
    answers: Codes


@dataclass(frozen=True)
class Trials:
    """Scores of one calibration in [0, 1], higher is more alike; one that reaches the threshold is accepted.

    Attributes:
        mate_scores: Scores of (query, item) pairs of one class; the positive pairs.
        non_mate_scores: Scores of pairs of different classes; the negative pairs, or the highest of them.
        best_mate_scores: For each query with a mate, its best score with one.
        best_scores_without_mate: For each query without a mate, its best score with anything.
        answer_scores: Scores of the labelled candidates of all queries, with and without a mate: those
            that reach the threshold are what a search returns.
        answer_is_mate: Whether each of these candidates is a mate of its query.
        labels: The labels behind the trials; None where only rates are asked for.
        low_pairs: Counts of the negative pairs that are not listed; None when all are.

    Raises:
        CalibrationError: A score is not a number, or parallel arrays differ in length.
    """

    mate_scores: Floats
    non_mate_scores: Floats
    best_mate_scores: Floats
    best_scores_without_mate: Floats
    answer_scores: Floats = field(default_factory=_no_scores)
    answer_is_mate: npt.NDArray[np.bool_] = field(default_factory=_no_flags)
    labels: TrialLabels | None = None
    low_pairs: LowPairs | None = None

    def __post_init__(self) -> None:
        for name, scores in vars(self).items():
            if "scores" in name and np.isnan(scores).any():
                raise CalibrationError(f"{name} holds NaN")
        _check_length("answer_is_mate", len(self.answer_is_mate), len(self.answer_scores))
        if self.labels is not None:
            self._check_labels(self.labels)

    @property
    def n_non_mates(self) -> int:
        """All negative pairs, listed or counted."""
        return len(self.non_mate_scores) + (self.low_pairs.n if self.low_pairs else 0)

    @cached_property
    def rising_non_mates(self) -> Floats:
        """The listed scores of negative pairs, ascending."""
        return np.sort(self.non_mate_scores)

    def n_non_mates_reaching(self, thresholds: Floats) -> npt.NDArray[np.int64]:
        """(N,) negative pairs that reach each threshold; exact down to the lowest listed score.

        Args:
            thresholds: (N,) scores.
        """
        below = np.searchsorted(self.rising_non_mates, thresholds, side="left")
        reaching = len(self.non_mate_scores) - below
        if self.low_pairs is not None:
            reaching += self.low_pairs.reaching(thresholds).sum(axis=0) // 2
        return np.asarray(reaching, dtype=np.int64)

    def non_mate_score_at(self, rank: int) -> float:
        """Score of the negative pair with a rank, 0 the highest; if not listed, the lower edge of its bin.

        Args:
            rank: Below the number of negative pairs.
        """
        n_listed = len(self.non_mate_scores)
        if self.low_pairs is not None and rank >= n_listed:
            return self.low_pairs.score_at(rank - n_listed)
        return float(self.rising_non_mates[n_listed - 1 - rank])

    def calibration_range(self, far_range: tuple[float, float]) -> tuple[float, float]:
        """Linearly interpolated scores that given shares of the negative pairs, at least one, reach.

        Args:
            far_range: The shares, in [0, 1].
        """
        strict, loose = (self._quantile_from_above(share * (self.n_non_mates - 1)) for share in far_range)
        return strict, loose

    def _quantile_from_above(self, position: float) -> float:
        rank = int(position)
        above = self.non_mate_score_at(rank)
        below = self.non_mate_score_at(min(rank + 1, self.n_non_mates - 1))
        return above + (below - above) * (position - rank)

    def _check_labels(self, labels: TrialLabels) -> None:
        for name, codes, scores in (
            ("mates", labels.mates, self.mate_scores),
            ("non_mate_queries", labels.non_mate_queries, self.non_mate_scores),
            ("non_mate_items", labels.non_mate_items, self.non_mate_scores),
            ("best_mates", labels.best_mates, self.best_mate_scores),
            ("without_mate", labels.without_mate, self.best_scores_without_mate),
            ("answers", labels.answers, self.answer_scores),
        ):
            _check_length(f"labels.{name}", len(codes), len(scores))


def _check_length(name: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise CalibrationError(f"{name} has {actual} entries, expected one for each of {expected} trials")


@dataclass(frozen=True)
class OperatingCurve:
    """Rates over the threshold, ascending.

    Attributes:
        thresholds: (n,) thresholds.
        far: (n,) false accept rate, the share of negative pairs that reach the threshold.
        frr: (n,) false reject rate, the share of positive pairs that do not.
        fpir: (n,) false positive identification rate, the share of queries without a mate that get
            any match (ISO/IEC 19795-1).
        fnir: (n,) false negative identification rate, the share of queries with a mate that get
            none of their mates.
    """

    thresholds: Floats
    far: Floats
    frr: Floats
    fpir: Floats
    fnir: Floats


def operating_curve(trials: Trials, thresholds: npt.ArrayLike | None = None) -> OperatingCurve:
    """Rates at the given thresholds, or at 201 quantiles of all scores.

    A rate without trials is NaN.

    Args:
        trials: The scores.
        thresholds: (n,) thresholds; they are sorted.
    """
    if thresholds is None:
        scores = np.concatenate([trials.mate_scores, trials.non_mate_scores])
        thresholds = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 201))) if len(scores) else []
    at = np.sort(np.asarray(thresholds, dtype=np.float64))
    return OperatingCurve(
        thresholds=at,
        far=_false_accept_rate(trials, at),
        frr=1.0 - rate_at_or_above(trials.mate_scores, at),
        fpir=rate_at_or_above(trials.best_scores_without_mate, at),
        fnir=1.0 - rate_at_or_above(trials.best_mate_scores, at),
    )


def _false_accept_rate(trials: Trials, thresholds: Floats) -> Floats:
    if not trials.n_non_mates:
        return np.full(len(thresholds), np.nan)
    return np.asarray(trials.n_non_mates_reaching(thresholds) / trials.n_non_mates)


def rate_at_or_above(scores: Floats, thresholds: Floats) -> Floats:
    """Share of the scores that reach each threshold; NaN without scores."""
    if not len(scores):
        return np.full(len(thresholds), np.nan)
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return (len(scores) - below) / len(scores)


Counts = npt.NDArray[np.int64]

MOST_LISTED = 12_000_000
_MOST_CELLS = 2**23
_MOST_BINS = 1024
_LEAST_BINS = 32
# One score in so many of a list that grew too long tells where to cut it; a few more than wanted are left.
_SAMPLED = 32
_SPARE, _ENOUGH = 1.02, 1.1


@dataclass(frozen=True)
class LowPairs:
    """Counts of the negative pairs that are not listed.

    Attributes:
        ceiling: Every one of them scores below it, and every listed pair at least as high.
        counts: (L, B) pairs by label and by score in even bins of [0, 1]; a pair stands under the label of
            its query and under that of its item, which differ.
    """

    ceiling: float
    counts: Counts

    @property
    def n(self) -> int:
        """Number of pairs."""
        return int(self.counts.sum()) // 2

    @property
    def by_label(self) -> Counts:
        """(L,) pairs with a member of each label."""
        return np.asarray(self.counts.sum(axis=1))

    def reaching(self, thresholds: npt.ArrayLike) -> Counts:
        """(L, N) pairs of each label that reach each threshold; those of a bin that one cuts all count.

        Args:
            thresholds: (N,) scores.
        """
        at = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
        from_bin = np.zeros((len(self.counts), self.counts.shape[1] + 1), dtype=np.int64)
        from_bin[:, :-1] = self.counts[:, ::-1].cumsum(axis=1)[:, ::-1]
        # What is below the ceiling does not reach it, though the rest of its bin might.
        places = np.where(at >= self.ceiling, self.counts.shape[1], self._bins(at))
        return from_bin[:, places]

    def lowest_edge(self, n: int) -> float:
        """The lowest edge of a bin that at most n of the pairs reach.

        Args:
            n: At least 0.
        """
        reached = self.counts.sum(axis=0)[::-1].cumsum()[::-1] // 2
        fitting = np.flatnonzero(reached <= n)
        if not len(fitting):
            return self.ceiling
        return min(self.ceiling, float(fitting[0]) / self.counts.shape[1])

    def score_at(self, rank: int) -> float:
        """Lower edge of the bin that holds the pair with a rank, 0 being the highest.

        Args:
            rank: Below the number of pairs.
        """
        reached = self.counts.sum(axis=0)[::-1].cumsum() // 2
        place = int(np.searchsorted(reached, rank, side="right"))
        return float(self.counts.shape[1] - 1 - place) / self.counts.shape[1]

    def _bins(self, scores: Floats) -> npt.NDArray[np.intp]:
        return _bins(scores, self.counts.shape[1])


@dataclass(frozen=True)
class ListedPairs:
    """The negative pairs with the highest scores.

    Attributes:
        scores: (P,) scores.
        queries: (P,) number of the query of each.
        item_labels: (P,) label of its item.
        low: The other pairs; None when all are listed.
    """

    scores: Floats
    queries: Codes
    item_labels: Codes
    low: LowPairs | None


class NegativePairs:
    """Collects negative pairs, block by block.

    Pairs are listed while they are few. From then on all of them are counted as they come, and listed only
    where they can still be among the highest; what is listed in the end is taken off the counts.

    Args:
        query_labels: (Q,) label of each query.
        n_labels: Number L of labels.
        most_listed: Pairs that are listed; the rest is counted.
    """

    def __init__(self, query_labels: Codes, n_labels: int, *, most_listed: int = MOST_LISTED) -> None:
        self._query_labels = query_labels
        self._query_type = np.min_scalar_type(len(query_labels))
        self._n_labels = n_labels
        self._most = most_listed
        self._parts: list[tuple[Floats, Codes, Codes]] = []
        self._n_listed = 0
        # What scores lower is only counted.
        self._floor = 0.0
        # A power of two, so that the edges of bins are exact.
        affordable = 2 ** max(0, (_MOST_CELLS // max(1, n_labels)).bit_length() - 1)
        self._n_bins = max(_LEAST_BINS, min(_MOST_BINS, affordable))
        # By label and bin, with one bin more a label for what is no pair; empty until something is counted.
        self._cells = np.zeros(0, np.int64)

    def add(self, scores: Floats, queries: npt.NDArray[np.integer], item_labels: Codes) -> None:
        """Take some more pairs.

        Args:
            scores: (P,) or (B, w), in [0, 1]; -1 where there is no pair.
            queries: Number of the query of each, of a shape that can be broadcast to that of the scores.
            item_labels: Label of its item, likewise.
        """
        if len(self._cells):
            self._count(scores, queries, item_labels)
        places = np.flatnonzero(scores >= self._floor)
        if not len(places):
            return
        at = np.unravel_index(places, scores.shape)
        queries, item_labels = (np.broadcast_to(one, scores.shape)[at] for one in (queries, item_labels))
        self._parts.append((scores[at], queries.astype(self._query_type), item_labels))
        self._n_listed += len(places)
        if self._n_listed > self._most + self._most // 2:
            self._shorten()

    def collected(self) -> ListedPairs:
        """All pairs so far."""
        if self._n_listed > self._most:
            self._count_all()
            self._keep(self._ceiling())
        scores, queries, item_labels = self._joined()
        if not len(self._cells):
            return ListedPairs(scores, queries, item_labels, None)
        self._count(scores, queries, item_labels, times=-1)
        counts = self._cells.reshape(self._n_labels, -1)[:, 1:].copy()
        self._count(scores, queries, item_labels)
        return ListedPairs(scores, queries, item_labels, LowPairs(self._floor, counts))

    def _shorten(self) -> None:
        """Drop pairs that more than enough others outdo."""
        self._count_all()
        # A sample tells about where the highest begin, in a fraction of the time; one look tells whether
        # enough of them are left.
        sample = np.concatenate([part[0][::_SAMPLED] for part in self._parts])
        place = len(sample) - 1 - int(_SPARE * self._most / _SAMPLED)
        floor = float(np.partition(sample, place)[place]) if place >= 0 else self._floor
        n_left = sum(np.count_nonzero(part[0] >= floor) for part in self._parts)
        self._keep(floor if self._most < n_left <= _ENOUGH * self._most else self._ceiling())

    def _ceiling(self) -> float:
        """The lowest that a listed pair can score; of those tied at the end none is, so that they are few."""
        scores = np.concatenate([part[0] for part in self._parts])
        place = len(scores) - 1 - self._most
        scores.partition(place)
        return float(np.nextafter(scores[place], np.inf))

    def _keep(self, floor: float) -> None:
        """Keep the listed pairs that score at least as high, and list no others from now on."""
        self._floor, kept = floor, []
        for scores, queries, item_labels in self._parts:
            places = np.flatnonzero(scores >= floor)
            if len(places):
                kept.append((scores[places], queries[places], item_labels[places]))
        self._parts = kept
        self._n_listed = sum(len(part[0]) for part in kept)

    def _joined(self) -> tuple[Floats, Codes, Codes]:
        if len(self._parts) > 1:
            scores, queries, items = zip(*self._parts, strict=True)
            self._parts = [(np.concatenate(scores), np.concatenate(queries), np.concatenate(items))]
        return self._parts[0] if self._parts else self._none()

    def _count_all(self) -> None:
        """From now on, count all pairs."""
        if not len(self._cells):
            self._cells = np.zeros(self._n_labels * (self._n_bins + 1), dtype=np.int64)
            for part in self._parts:
                self._count(*part)

    def _count(
        self, scores: Floats, queries: npt.NDArray[np.integer], item_labels: Codes, *, times: int = 1
    ) -> None:
        # What is no pair falls into the bin before the first.
        bins = _bins(scores, self._n_bins, lowest=-1)
        for labels in (self._query_labels[queries], item_labels):
            places = bins + (labels.astype(np.intp) * (self._n_bins + 1) + 1)
            np.add.at(self._cells, places.ravel(), times)

    def _none(self) -> tuple[Floats, Codes, Codes]:
        return np.empty(0), np.empty(0, self._query_type), np.empty(0, self._query_labels.dtype)


def _bins(scores: Floats, n_bins: int, *, lowest: int = 0) -> npt.NDArray[np.intp]:
    return np.clip(scores * n_bins, lowest, n_bins - 1).astype(np.intp)
