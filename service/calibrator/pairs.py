"""Pair scoring: the score of every query with every labelled item, block by block.

Each (query, item) pair of two known labels counts, whether a search would fetch it or not, except those of
a query with itself and with photos of its group. A pair that a search would fetch has the score that the
search gives. Any other item lies outside of the query's neighborhood, where the contextual similarity is 0,
so that its score follows from its similarity alone; that is computed in blocks of items, as one float64
product a block, and rounded to float32 like the similarities of candidates. No more than one block of each
space is held: mates are listed, of the negative pairs the highest are (`calibration.trials.NegativePairs`).
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

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

# Pairs that are multiplied at a time, and those counted at a time, which stay in the processor's cache.
_BLOCK = 2**22
_AT_ONCE = 2**15


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


@dataclass(frozen=True)
class _Part:
    """Some pairs of a block.

    Attributes:
        start: First query of the block.
        few: Which of its rows.
        columns: Which items.
    """

    start: int
    few: slice
    columns: slice

    @property
    def rows(self) -> slice:
        """Which queries."""
        return slice(self.start + self.few.start, self.start + self.few.stop)


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
        self._all_labelled = bool(self._is_labelled.all())
        # Items without a label have a code that no query has.
        self._item_codes = np.minimum(labels.groups, labels.n_labels).astype(labels.code_type)
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
            spaces = zip(self._spaces.items(), compared, strict=True)
            wide = {name: space.similarities(given, excluded, columns) for (name, space), given in spaces}
            height = max(1, _AT_ONCE // (columns.stop - start))
            for first in range(0, n_rows, height):
                part = slice(first, min(first + height, n_rows))
                self._add_part(_Part(rows.start, part, columns), wide, scored, excluded[part], best)
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

    def _add_part(
        self,
        part: _Part,
        wide: Mapping[str, Floats],
        scored: ScoredCandidates,
        excluded: Sequence[Positions],
        best: QueryMates,
    ) -> None:
        mates, others = self._kinds(part, excluded)
        for name, similarities in wide.items():
            # 1 - sqrt(2 - 2 s) / 2
            closeness = np.multiply(similarities[part.few], -2.0)
            closeness += 2.0
            np.sqrt(closeness, out=closeness)
            closeness *= -0.5
            closeness += 1.0
            self._keep(name, part, closeness, mates, others)
        *_, last = wide.values()
        scores = similarity_score(last[part.few].astype(np.float32), self._context_weight)
        _take_over(scores, scored, part)
        mate_scores = self._keep("final", part, scores, mates, others)
        rows, places = mates
        self._mate_places.append((rows + part.rows.start, places + part.columns.start))
        _update(best, part, mates, mate_scores)

    def _kinds(self, part: _Part, excluded: Sequence[Positions]) -> tuple[Places, Places]:
        """Row and column of the positive pairs in a part, and of what else is no negative pair."""
        rows, columns = part.rows, part.columns
        is_mate = self._codes[rows, None] == self._item_codes[columns]
        out = np.repeat(np.arange(len(excluded)), [len(one) for one in excluded]), np.concatenate(excluded)
        here = (out[1] >= columns.start) & (out[1] < columns.stop)
        out = out[0][here], out[1][here] - columns.start
        is_mate[out] = False
        mate_rows, mate_columns = np.nonzero(is_mate)
        is_labelled = self._is_labelled[columns]
        n_none = np.bincount(np.concatenate([mate_rows, out[0][is_labelled[out[1]]]]), minlength=len(is_mate))
        self._n_negatives[rows] += np.count_nonzero(is_labelled) - n_none
        return (mate_rows, mate_columns), out

    def _keep(self, name: str, part: _Part, scores: Floats, mates: Places, out: Places) -> Floats:
        """Take the pairs of a part, and return the scores of the positive ones."""
        mate_scores = scores[mates]
        self._mates[name].append(mate_scores)
        scores[mates] = scores[out] = -1.0
        if not self._all_labelled:
            scores[:, ~self._is_labelled[part.columns]] = -1.0
        queries = np.arange(part.rows.start, part.rows.stop)[:, None]
        self._negatives[name].add(scores, queries, self._item_codes[part.columns])
        return mate_scores


def _take_over(scores: Floats, scored: ScoredCandidates, part: _Part) -> None:
    """Write the scores of candidates over those that follow from the similarity."""
    positions, columns = scored.positions[part.few], part.columns
    rows, places = np.nonzero((positions >= columns.start) & (positions < columns.stop))
    scores[rows, positions[rows, places] - columns.start] = scored.scores[part.few][rows, places]


def _update(best: QueryMates, part: _Part, mates: Places, scores: Floats) -> None:
    """Take over mates that score higher than those so far."""
    # The highest of each row, the first of equals.
    order = np.lexsort((mates[1], -scores, mates[0]))
    rows, first = np.unique(mates[0][order], return_index=True)
    highest, places = scores[order][first], mates[1][order][first]
    rows = rows + part.few.start
    better = highest > best.best_scores[rows]
    best.best_scores[rows[better]] = highest[better]
    best.best_items[rows[better]] = places[better] + part.columns.start
    best.has_mate[rows[better]] = True
