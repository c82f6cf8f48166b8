"""Pair scoring: the score of every query with every labelled item, block by block.

Each (query, item) pair of two known labels counts, whether a search would fetch it or not, except those of
a query with itself and with photos of its group. A pair that a search would fetch has the score that the
search gives. Any other item lies outside of the query's neighborhood, where the contextual similarity is 0,
so that its score follows from its similarity alone; that is computed in blocks of items, as one float64
product a block, and rounded to float32 like the similarities of candidates. Never more than one block is
held: mates are listed, of the negative pairs the highest are (`calibration.trials.NegativePairs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.trials import ListedPairs, NegativePairs
from vicinal.models.similarity import FloatArray
from vicinal.service.scoring.item_spaces import SearchSpace
from vicinal.service.scoring.scorer import ScoredCandidates, similarity_score

__all__ = [
    "GalleryLabels",
    "PairScores",
    "PairScoring",
    "QueryMates",
]

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.unsignedinteger]
Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Pairs a block.
_BLOCK = 2**20


@dataclass(frozen=True)
class GalleryLabels:
    """Labels of the gallery's items as numbers.

    Attributes:
        groups: (n,) number of each item's label; an item without a label has a number of its own from
            `n_labels` on.
        n_labels: Labels of gallery and queries.
    """

    groups: Positions
    n_labels: int

    @property
    def is_labelled(self) -> Bools:
        """(n,) whether an item has a label."""
        return self.groups < self.n_labels

    @property
    def code_type(self) -> np.dtype[np.unsignedinteger]:
        """Smallest type that holds a label's number."""
        return np.dtype(np.min_scalar_type(self.n_labels))


@dataclass(frozen=True)
class QueryMates:
    """Mates of some queries.

    Attributes:
        has_mate: (B,) whether there is one.
        best_scores: (B,) best score with one, -inf without.
        best_items: (B,) position of that mate, -1 without.
    """

    has_mate: Bools
    best_scores: Floats
    best_items: Positions


@dataclass(frozen=True)
class PairScores:
    """Scores of all pairs.

    Attributes:
        mate_queries: (M,) row of the query of each positive pair.
        mate_items: (M,) position of its item.
        mate_scores: By space, and `final`: (M,) score of each positive pair; in a space of embeddings
            1 - d / 2 with the L2 distance d.
        non_mates: By the same names: the negative pairs.
        n_negatives: (Q,) negative pairs of each query.
    """

    mate_queries: Positions
    mate_items: Positions
    mate_scores: dict[str, Floats]
    non_mates: dict[str, ListedPairs]
    n_negatives: Positions


class PairScoring:
    """Collects the pairs of queries with a gallery.

    Args:
        labels: Labels of the items.
        codes: (Q,) label of each query.
        spaces: Spaces of embeddings by name; final scores follow from the similarities in the last one.
        context_weight: Weight of the contextual similarity in a final score.
    """

    def __init__(
        self,
        labels: GalleryLabels,
        codes: Codes,
        spaces: Mapping[str, SearchSpace],
        *,
        context_weight: float,
    ) -> None:
        self._labels = labels
        self._is_labelled = labels.is_labelled
        self._codes = codes
        self._spaces = spaces
        self._context_weight = context_weight
        self._negatives = {name: NegativePairs(codes, labels.n_labels) for name in (*spaces, "final")}
        self._mates: dict[str, list[Floats]] = {name: [] for name in self._negatives}
        self._mate_places: list[tuple[Positions, Positions]] = []
        self._n_negatives = np.zeros(len(codes), dtype=np.int64)

    def add(
        self,
        rows: slice,
        compared: Sequence[FloatArray],
        scored: ScoredCandidates,
        excluded: Sequence[Positions],
    ) -> QueryMates:
        """Score some queries with every item.

        Args:
            rows: Which queries.
            compared: For each space (B, d) what stands for them there.
            scored: Their candidates.
            excluded: For each of them, items that form no pair with it.
        """
        n, n_rows = len(self._labels.groups), rows.stop - rows.start
        best = QueryMates(np.zeros(n_rows, bool), np.full(n_rows, -np.inf), np.full(n_rows, -1))
        width = max(1, _BLOCK // n_rows)
        for start in range(0, n, width):
            columns = slice(start, min(start + width, n))
            is_mate, is_negative = self._kinds(rows, columns, excluded)
            for (name, space), embeddings in zip(self._spaces.items(), compared, strict=True):
                wide = space.similarities(embeddings, excluded, columns)
                closeness = 1.0 - np.sqrt(2.0 - 2.0 * wide) / 2.0
                self._keep(name, rows, columns, (closeness, is_mate, is_negative))
            scores = similarity_score(wide.astype(np.float32), self._context_weight)
            _take_over(scores, scored, columns)
            self._keep("final", rows, columns, (scores, is_mate, is_negative))
            self._n_negatives[rows] += is_negative.sum(axis=1)
            queries, items = np.nonzero(is_mate)
            self._mate_places.append((queries + rows.start, items + columns.start))
            _update(best, np.where(is_mate, scores, -np.inf), columns)
        return best

    def collected(self) -> PairScores:
        """All pairs so far."""
        queries, items = (np.concatenate(parts) for parts in zip(*self._mate_places, strict=True))
        return PairScores(
            mate_queries=queries,
            mate_items=items,
            mate_scores={name: np.concatenate(parts) for name, parts in self._mates.items()},
            non_mates={name: pairs.collected() for name, pairs in self._negatives.items()},
            n_negatives=self._n_negatives,
        )

    def _kinds(self, rows: slice, columns: slice, excluded: Sequence[Positions]) -> tuple[Bools, Bools]:
        """(B, w) whether a pair is a positive one, and whether it is a negative one."""
        counts = np.repeat(self._is_labelled[None, columns], rows.stop - rows.start, axis=0)
        for row, out in zip(counts, excluded, strict=True):
            row[out[(out >= columns.start) & (out < columns.stop)] - columns.start] = False
        is_mate = (self._codes[rows, None] == self._labels.groups[columns]) & counts
        return is_mate, counts & ~is_mate

    def _keep(self, name: str, rows: slice, columns: slice, scored: tuple[Floats, Bools, Bools]) -> None:
        scores, is_mate, is_negative = scored
        self._mates[name].append(scores[is_mate])
        queries, items = np.nonzero(is_negative)
        item_labels = self._labels.groups[columns][items].astype(self._labels.code_type)
        self._negatives[name].add(scores[is_negative], queries + rows.start, item_labels)


def _take_over(scores: Floats, scored: ScoredCandidates, columns: slice) -> None:
    """Write the scores of candidates over those that follow from the similarity."""
    positions = scored.positions
    rows, places = np.nonzero((positions >= columns.start) & (positions < columns.stop))
    scores[rows, positions[rows, places] - columns.start] = scored.scores[rows, places]


def _update(best: QueryMates, scores: Floats, columns: slice) -> None:
    """Take over mates that score higher than those so far."""
    places = scores.argmax(axis=1)
    highest = scores[np.arange(len(scores)), places]
    better = highest > best.best_scores
    best.best_scores[better] = highest[better]
    best.best_items[better] = places[better] + columns.start
    best.has_mate[better] = True
