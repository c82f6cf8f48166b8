"""Trials: the scores that a calibration counts, the labels behind them, and rates over the threshold.

Negative pairs are held in bounded memory. A thousand queries against a hundred thousand items make a hundred
million of them. What a threshold is chosen by are the highest, and these are listed exactly: score, query and
label of the item. Every pair below is counted too, by label and by score in narrow bins, so that no rate
forgets one. At thresholds down to the lowest listed score all rates are exact; below, a bin that the
threshold cuts counts as reached, which makes rates of acceptance too high by at most the share of that bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyInts, Codes, FloatArray, Floats, Indices, Ints, Mask, Objects
from vicinal.calibration.errors import CalibrationError


@dataclass(frozen=True)
class TrialLabels:
    """Label of each trial, as its position in `names`; the arrays are parallel to those of `Trials`."""

    names: Objects  # (L,) labels of queries and items
    mates: Codes  # Label that both members of a positive pair have
    non_mate_queries: Codes  # Label of the query of each negative pair
    non_mate_items: Codes  # Label of its item
    best_mates: Codes  # Label of each query with a mate
    without_mate: Codes  # Label of each query without a mate
    answers: Codes  # Label of the query of each candidate


@dataclass(frozen=True)
class Trials:
    """Scores of one calibration in [0, 1], higher is more alike; what reaches the threshold is accepted."""

    mate_scores: Floats  # Scores of (query, item) pairs of one class; the positive pairs
    # Scores of pairs of different classes; the negative pairs, or the highest of them.
    non_mate_scores: Floats
    best_mate_scores: Floats  # For each query with a mate, its best score with one
    best_scores_without_mate: Floats  # For each query without a mate, its best score with anything
    # Scores of the labelled candidates of all queries, with and without a mate: those that reach the
    # threshold are what a search returns.
    answer_scores: Floats = field(default_factory=lambda: np.empty(0))
    # Whether each of these candidates is a mate of its query.
    answer_is_mate: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    labels: TrialLabels | None = None  # The labels behind the trials; None where only rates are asked for
    low_pairs: LowPairs | None = None  # Counts of the negative pairs that are not listed; None when all are
    # Whether the query of each candidate has a mate in what it was searched for in.
    answer_has_mate: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    # How much each candidate counts, see `at_mix`; empty where all count alike.
    answer_weights: Floats = field(default_factory=lambda: np.empty(0))
    # Searches behind the candidates, with and without a mate; zeros where that is not known.
    n_searches: tuple[float, float] = (0, 0)
    # How many searches each query stands for, of those that were drawn among many; empty where all count
    # alike.
    best_mate_weights: Floats = field(default_factory=lambda: np.empty(0))
    without_mate_weights: Floats = field(default_factory=lambda: np.empty(0))

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

    @property
    def absent(self) -> float | None:
        """Share of the searches without a mate, as they were tried; None where that is not known."""
        return self.n_searches[1] / sum(self.n_searches) if any(self.n_searches) else None

    def at_mix(self, absent: float) -> Trials:
        """These trials with the returned candidates weighted as where a share in [0, 1) of the searches has
        no mate; searches of both kinds must have been tried.
        """
        n_with, n_without = self.n_searches
        if not n_with or not n_without:
            which = "no" if n_with else "a"
            raise CalibrationError(
                f"no share of absent things can be reckoned with: no query with {which} mate was tried"
            )
        n = n_with + n_without
        weights = np.where(self.answer_has_mate, (1.0 - absent) * n / n_with, absent * n / n_without)
        if self.is_weighted:
            weights = weights * self.answer_weights
        return replace(self, answer_weights=weights)

    @property
    def is_weighted(self) -> bool:
        """Tell whether queries stand for different numbers of searches."""
        return bool(len(self.best_mate_weights) or len(self.without_mate_weights))

    @cached_property
    def rising_non_mates(self) -> Floats:
        """The listed scores of negative pairs, ascending."""
        return np.sort(self.non_mate_scores)

    def n_non_mates_reaching(self, thresholds: Floats) -> Ints:
        """(N,) negative pairs that reach each of (N,) thresholds; exact down to the lowest listed score."""
        below = np.searchsorted(self.rising_non_mates, thresholds, side="left")
        reaching = len(self.non_mate_scores) - below
        if self.low_pairs is not None:
            reaching += self.low_pairs.reaching(thresholds).sum(axis=0) // 2
        return np.asarray(reaching, dtype=np.int64)

    def non_mate_score_at(self, rank: int) -> float:
        """Score of the negative pair with a rank, 0 the highest; if not listed, the lower edge of its bin."""
        n_listed = len(self.non_mate_scores)
        if self.low_pairs is not None and rank >= n_listed:
            return self.low_pairs.score_at(rank - n_listed)
        return float(self.rising_non_mates[n_listed - 1 - rank])

    def calibration_range(self, far_range: tuple[float, float]) -> tuple[float, float]:
        """Linearly interpolated scores that given shares in [0, 1] of the negative pairs reach."""
        last = self.n_non_mates - 1

        def score_at(position: float) -> float:
            rank = int(position)
            above, below = self.non_mate_score_at(rank), self.non_mate_score_at(min(rank + 1, last))
            return above + (below - above) * (position - rank)

        return score_at(far_range[0] * last), score_at(far_range[1] * last)

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
    """Rates over the threshold, ascending."""

    thresholds: Floats  # (n,) thresholds
    far: Floats  # (n,) false accept rate, the share of negative pairs that reach the threshold
    frr: Floats  # (n,) false reject rate, the share of positive pairs that do not
    # (n,) false positive identification rate, the share of queries without a mate that get any match (ISO/IEC
    # 19795-1).
    fpir: Floats
    # (n,) false negative identification rate, the share of queries with a mate that get none of their mates.
    fnir: Floats


def operating_curve(trials: Trials, thresholds: npt.ArrayLike | None = None) -> OperatingCurve:
    """Rates at (n,) thresholds, in any order, or at 201 quantiles of all scores; NaN without trials."""
    if thresholds is None:
        scores = np.concatenate([trials.mate_scores, trials.non_mate_scores])
        thresholds = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 201))) if len(scores) else []
    at = np.sort(np.asarray(thresholds, dtype=np.float64))
    n_negative = trials.n_non_mates or np.nan
    return OperatingCurve(
        thresholds=at,
        far=trials.n_non_mates_reaching(at) / n_negative,
        frr=1.0 - rate_at_or_above(trials.mate_scores, at),
        fpir=rate_at_or_above(trials.best_scores_without_mate, at, trials.without_mate_weights),
        fnir=1.0 - rate_at_or_above(trials.best_mate_scores, at, trials.best_mate_weights),
    )


def rate_at_or_above(scores: Floats, thresholds: Floats, weights: Floats | None = None) -> Floats:
    """Share of the scores that reach each threshold; NaN without scores. All count alike without weights."""
    if not len(scores):
        return np.full(len(thresholds), np.nan)
    if weights is None or not len(weights):
        below = np.searchsorted(np.sort(scores), thresholds, side="left")
        return (len(scores) - below) / len(scores)
    order = np.argsort(scores, kind="stable")
    below = np.searchsorted(scores[order], thresholds, side="left")
    up_to = np.append(0.0, weights[order].cumsum())
    return np.asarray(1.0 - up_to[below] / up_to[-1])


Rise = Callable[[Floats], Floats]
# Scores, numbers of queries and labels of items.
_Pairs = tuple[Floats, Codes, Codes]

# The whole calibration range is listed, 10 % of all pairs and some, where it is no more than the most, and
# otherwise what does for a threshold: OPIS of 1,024 bins is off by .2 % then. Where bins are wide, the most.
_MOST_LISTED, _LISTED = 12_000_000, 4_000_000
_LOOSEST = 0.105
_MOST_CELLS = 2**23
_MOST_BINS = 4096
_FINE_BINS, _LEAST_BINS = 512, 32
# Pairs that are counted at a time, which stay in the processor's cache.
_AT_ONCE = 2**16
# One value in so many of a list that grew too long tells where to cut it; a few more than wanted are left.
_SAMPLED = 32
_SPARE, _ENOUGH = 1.02, 1.1


@dataclass(frozen=True)
class LowPairs:
    """Counts of the negative pairs that are not listed."""

    ceiling: float  # Every one of them scores below it, and every listed pair at least as high
    # (L, B) pairs by label and by bin of the score; a pair stands under the label of its query and under that
    # of its item, which differ.
    counts: Ints
    edges: Floats  # (B + 1,) rising edges of the bins

    @property
    def n(self) -> int:
        """Number of pairs."""
        return int(self.counts.sum()) // 2

    @property
    def by_label(self) -> Ints:
        """(L,) pairs with a member of each label."""
        return np.asarray(self.counts.sum(axis=1))

    def reaching(self, thresholds: npt.ArrayLike) -> Ints:
        """(L, N) pairs of each label that reach each of (N,) thresholds; all of a bin that one cuts count."""
        at = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
        from_bin = np.zeros((len(self.counts), self.counts.shape[1] + 1), dtype=np.int64)
        from_bin[:, :-1] = self.counts[:, ::-1].cumsum(axis=1)[:, ::-1]
        # What is below the ceiling does not reach it, though the rest of its bin might.
        places = np.where(at >= self.ceiling, self.counts.shape[1], self._bins(at))
        return from_bin[:, places]

    def lowest_edge(self, n: int) -> float:
        """The lowest edge of a bin that at most n of the pairs reach."""
        reached = self.counts.sum(axis=0)[::-1].cumsum()[::-1] // 2
        fitting = np.flatnonzero(reached <= n)
        if not len(fitting):
            return self.ceiling
        return min(self.ceiling, float(self.edges[fitting[0]]))

    def score_at(self, rank: int) -> float:
        """Lower edge of the bin that holds the pair with a rank, 0 being the highest."""
        reached = self.counts.sum(axis=0)[::-1].cumsum() // 2
        place = int(np.searchsorted(reached, rank, side="right"))
        return float(self.edges[self.counts.shape[1] - 1 - place])

    def with_more(self, scores: Floats, labels: tuple[Codes, Codes]) -> LowPairs:
        """These and (P,) more pairs, which score below the ceiling, with labels of queries and of items."""
        counts, bins = self.counts.copy(), self._bins(scores)
        for one in labels:
            np.add.at(counts, (one, bins), 1)
        return replace(self, counts=counts)

    def _bins(self, scores: Floats) -> Indices:
        places = np.searchsorted(self.edges, scores, side="right") - 1
        return np.clip(places, 0, self.counts.shape[1] - 1)


@dataclass(frozen=True)
class ListedPairs:
    """The negative pairs with the highest scores."""

    scores: Floats  # (P,) scores
    queries: Codes  # (P,) number of the query of each
    item_labels: Codes  # (P,) label of its item
    low: LowPairs | None  # The other pairs; None when all are listed

    def rescored(self, rise: Rise) -> ListedPairs:
        """The same pairs with other scores; a higher one must not become lower than another."""
        low = self.low
        if low is not None:
            ceiling = float(rise(np.array([low.ceiling]))[0])
            low = replace(low, ceiling=ceiling, edges=rise(low.edges))
        return replace(self, scores=rise(self.scores), low=low)

    def with_more(self, more: ListedPairs, query_labels: Codes) -> ListedPairs:
        """These pairs and others, of which those below the ceiling are counted, by (Q,) labels of queries."""
        low, is_high = self.low, np.ones(len(more.scores), bool)
        if low is not None:
            is_high = more.scores >= low.ceiling
            labels = query_labels[more.queries[~is_high]], more.item_labels[~is_high]
            low = low.with_more(more.scores[~is_high], labels)
        return ListedPairs(
            np.concatenate([self.scores, more.scores[is_high]]),
            np.concatenate([self.queries, more.queries[is_high].astype(self.queries.dtype)]),
            np.concatenate([self.item_labels, more.item_labels[is_high]]),
            low,
        )


class NegativePairs:
    """Collects negative pairs, block by block.

    Pairs are listed while they are few. From then on all of them are counted as they come, and listed only
    where they can still be among the highest; what is listed in the end is taken off the counts. Which bin a
    pair falls into is told by its score rounded to float32, which can be the next one above. Scores go from
    the integer `lowest` to 1, and `no_pair` stands in a block where there is no pair. With `both_ways`, every
    pair comes a second time, with the same score and with its labels exchanged.
    """

    def __init__(
        self,
        query_labels: Codes,
        n_labels: int,
        *,
        lowest: int = 0,
        most_listed: int = _MOST_LISTED,
        both_ways: bool = False,
    ) -> None:
        self._query_labels = query_labels
        self._query_type = np.min_scalar_type(len(query_labels))
        self._n_labels = n_labels
        self._lowest = lowest
        self._most = most_listed
        self._both_ways = both_ways
        self._parts: list[_Pairs] = []
        self._apart: list[_Pairs] = []
        self._n_listed = 0
        # What scores lower is only counted.
        self._floor = np.float32(lowest)
        self._n_bins = _n_bins(n_labels)
        self.no_pair = lowest - 0.5 * (1 - lowest) / self._n_bins
        # By label and bin, with a bin before the first for what is no pair, and one behind the last for
        # what scores 1; empty until something is counted.
        self._cells = np.zeros((0, 0), np.int64)

    def add(
        self,
        scores: Floats,
        queries: AnyInts,
        item_labels: Codes,
        *,
        apart: tuple[Indices, Indices] | None = None,
    ) -> None:
        """Take (P,) more pairs, with numbers of queries and labels of items, or a (B, w) block, with those of
        its rows and columns; pairs of a block that are `apart` are neither listed nor counted among the
        others.
        """
        rounded = scores.astype(np.float32)
        if len(self._cells):
            self._count(rounded, queries, item_labels)
        if apart is not None:
            rows, columns = apart
            self._apart.append(self._pairs(scores[apart], queries[rows], item_labels[columns]))
            rounded[apart] = self.no_pair
        places = np.flatnonzero(rounded >= self._floor)
        if not len(places):
            return
        rows = columns = places
        if scores.ndim == 2:
            rows, columns = np.divmod(places, scores.shape[1])
        self._parts.append(self._pairs(scores.ravel()[places], queries[rows], item_labels[columns]))
        self._n_listed += len(places)
        if self._n_listed > self._most + self._most // 2:
            self._shorten()

    def collected(self) -> ListedPairs:
        """All pairs so far but for those apart."""
        if self._n_listed > self._most:
            self._count_all()
            self._keep(self._ceiling())
        self._parts = [self._joined(self._parts)]
        (listed,) = self._parts
        if not len(self._cells):
            return ListedPairs(*listed, None)
        cells = self._cells.copy()
        for scores, queries, item_labels in (listed, self.apart()):
            self._count_pairs(
                cells, scores.astype(np.float32), (self._query_labels[queries], item_labels), -1
            )
        counts = cells[:, 1:-1]
        counts[:, -1] += cells[:, -1]
        edges = np.linspace(self._lowest, 1.0, self._n_bins + 1)
        return ListedPairs(*listed, LowPairs(float(self._floor), counts, edges))

    def apart(self) -> _Pairs:
        """Scores, queries and labels of the items of the pairs that were held apart, in their order."""
        self._apart = [self._joined(self._apart)]
        return self._apart[0]

    def _pairs(self, scores: Floats, queries: AnyInts, item_labels: Codes) -> _Pairs:
        return scores, queries.astype(self._query_type), item_labels

    def _shorten(self) -> None:
        """Drop pairs that more than enough others outdo."""
        self._count_all()
        # A sample tells about where the highest begin, in a fraction of the time; one look tells whether
        # enough of them are left.
        sample = np.concatenate([part[0][::_SAMPLED] for part in self._parts])
        place = len(sample) - 1 - int(_SPARE * self._most / _SAMPLED)
        floor = np.float32(np.partition(sample, place)[place]) if place >= 0 else self._floor
        n_left = sum(np.count_nonzero(part[0].astype(np.float32) >= floor) for part in self._parts)
        self._keep(floor if self._most < n_left <= _ENOUGH * self._most else self._ceiling())

    def _ceiling(self) -> np.float32:
        """The lowest that a listed pair can score; of those tied at the end none is, so that they are few."""
        scores = np.concatenate([part[0] for part in self._parts])
        place = len(scores) - 1 - self._most
        scores.partition(place)
        return np.nextafter(np.float32(scores[place]), np.float32(np.inf))

    def _keep(self, floor: np.float32) -> None:
        """Keep the listed pairs that score at least as high, and list no others from now on."""
        self._floor, kept = floor, []
        for scores, queries, item_labels in self._parts:
            places = np.flatnonzero(scores.astype(np.float32) >= floor)
            if len(places):
                kept.append((scores[places], queries[places], item_labels[places]))
        self._parts = kept
        self._n_listed = sum(len(part[0]) for part in kept)

    def _joined(self, parts: list[_Pairs]) -> _Pairs:
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0), np.empty(0, self._query_type), np.empty(0, self._query_labels.dtype)
        scores, queries, item_labels = zip(none, *parts, strict=True)
        return np.concatenate(scores), np.concatenate(queries), np.concatenate(item_labels)

    def _count_all(self) -> None:
        """Count all pairs from now on."""
        if not len(self._cells):
            self._cells = np.zeros((self._n_labels, self._n_bins + 2), dtype=np.int64)
            for scores, queries, item_labels in (*self._parts, *self._apart):
                self._count(scores.astype(np.float32), queries, item_labels)

    def _count(self, scores: FloatArray, queries: AnyInts, item_labels: Codes) -> None:
        """Count pairs under the label of the query and under that of the item."""
        of_queries, times = self._query_labels[queries], 2 if self._both_ways else 1
        if scores.ndim == 1:
            labels = (of_queries,) if self._both_ways else (of_queries, item_labels)
            self._count_pairs(self._cells, scores, labels, times)
            return
        n_cells = self._cells.shape[1]
        # An item without a label has a number beyond theirs, and is in no pair.
        starts = np.minimum(item_labels.astype(np.int64), self._n_labels - 1) * n_cells
        for row, label in zip(scores, of_queries.tolist(), strict=True):
            cells = self._cells_of(row)
            self._cells[label] += times * np.bincount(cells, minlength=n_cells)
            if not self._both_ways:
                np.add.at(self._cells.reshape(-1), cells + starts, 1)

    def _count_pairs(self, cells: Ints, scores: FloatArray, labels: tuple[Codes, ...], times: int) -> None:
        for start in range(0, len(scores), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            places = self._cells_of(scores[part])
            for one in labels:
                np.add.at(cells.reshape(-1), places + one[part].astype(np.int64) * cells.shape[1], times)

    def _cells_of(self, scores: FloatArray) -> Ints:
        scale = np.float32(self._n_bins / (1 - self._lowest))
        cells = scores * scale
        cells += np.float32(1.0 - self._lowest * scale)
        return cells.astype(np.int64)


def listed_of(n_pairs: int, n_labels: int) -> int:
    """Number of negative pairs, of so many, that are worth a list."""
    in_range = math.ceil(_LOOSEST * n_pairs)
    if in_range <= _MOST_LISTED:
        return max(_LISTED, in_range)
    return _LISTED if _n_bins(n_labels) >= _FINE_BINS else _MOST_LISTED


def _n_bins(n_labels: int) -> int:
    # A power of two, so that the edges of bins are exact.
    affordable = 2 ** max(0, (_MOST_CELLS // max(1, n_labels)).bit_length() - 1)
    return max(_LEAST_BINS, min(_MOST_BINS, affordable))
