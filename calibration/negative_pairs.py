"""Negative pairs in bounded memory: the highest scores one by one, the rest as counts.

A thousand queries against a hundred thousand items make a hundred million negative pairs. What a threshold is
chosen by are the highest of them, and these are listed exactly: score, query and label of the item. Every
pair below is counted too, by label and by score in even bins of [0, 1], so that no rate forgets one. At
thresholds down to the lowest listed score all rates are exact; below, a bin that the threshold cuts
counts as reached, which makes rates of acceptance too high by at most the share of that one bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ListedPairs", "LowPairs", "NegativePairs"]

Codes = npt.NDArray[np.unsignedinteger]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_LISTED = 12_000_000
_MOST_CELLS = 2**23
_MOST_BINS = 1024
_LEAST_BINS = 32


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
        self._ceiling = -np.inf
        self._cells: Counts | None = None

    def add(self, scores: Floats, queries: npt.NDArray[np.integer], item_labels: Codes) -> None:
        """Take some more pairs.

        Args:
            scores: (P,) in [0, 1].
            queries: (P,) number of the query of each.
            item_labels: (P,) label of its item.
        """
        self._list(scores, queries.astype(self._query_type), item_labels)
        if self._n_listed > self._most + self._most // 2:
            self._shrink()

    def collected(self) -> ListedPairs:
        """All pairs so far."""
        if self._n_listed > self._most:
            self._shrink()
        self._join()
        scores, queries, items = self._parts[0] if self._parts else self._none()
        low = (
            None if self._cells is None else LowPairs(self._ceiling, self._cells.reshape(self._n_labels, -1))
        )
        return ListedPairs(scores, queries, items, low)

    def _list(self, scores: Floats, queries: Codes, item_labels: Codes) -> None:
        is_low = scores < self._ceiling
        if is_low.any():
            self._count(scores[is_low], queries[is_low], item_labels[is_low])
            kept = ~is_low
            scores, queries, item_labels = scores[kept], queries[kept], item_labels[kept]
        if len(scores):
            self._parts.append((scores, queries, item_labels))
            self._n_listed += len(scores)

    def _shrink(self) -> None:
        """Keep the highest pairs; of those tied at the end none, so that the list stays short."""
        self._join()
        scores, queries, item_labels = self._parts.pop()
        self._n_listed = 0
        last = np.partition(scores, len(scores) - 1 - self._most)[len(scores) - 1 - self._most]
        self._ceiling = float(np.nextafter(last, np.inf))
        self._list(scores, queries, item_labels)

    def _join(self) -> None:
        if len(self._parts) > 1:
            scores, queries, items = zip(*self._parts, strict=True)
            self._parts = [(np.concatenate(scores), np.concatenate(queries), np.concatenate(items))]

    def _count(self, scores: Floats, queries: Codes, item_labels: Codes) -> None:
        # A power of two, so that the edges of bins are exact.
        affordable = 2 ** max(0, (_MOST_CELLS // self._n_labels).bit_length() - 1)
        n_bins = max(_LEAST_BINS, min(_MOST_BINS, affordable))
        if self._cells is None:
            self._cells = np.zeros(self._n_labels * n_bins, dtype=np.int64)
        bins = _bins(scores, n_bins)
        for labels in (self._query_labels[queries], item_labels):
            np.add.at(self._cells, labels.astype(np.intp) * n_bins + bins, 1)

    def _none(self) -> tuple[Floats, Codes, Codes]:
        return np.empty(0), np.empty(0, self._query_type), np.empty(0, self._query_labels.dtype)


def _bins(scores: Floats, n_bins: int) -> npt.NDArray[np.intp]:
    return np.clip(scores * n_bins, 0, n_bins - 1).astype(np.intp)
