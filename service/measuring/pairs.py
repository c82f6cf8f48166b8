"""Pair scoring: the score of every query with every labelled item, block by block.

Every pair of two known labels counts, except those of a query with itself and with photos of its group. A
pair that a search would fetch has the score of the search. Any other item lies outside of the query's
neighborhood, where the contextual similarity is 0, so that its score follows from its similarity alone. Of
the negative pairs the most similar are kept (`calibration.trials`), as a score rises with the similarity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from vicinal.calibration.arrays import Codes, FloatArray, Floats, Indices, Ints, Mask
from vicinal.calibration.trials import ListedPairs, NegativePairs, listed_of
from vicinal.service.search.item_spaces import BlockProducts, SearchSpace, exact_products
from vicinal.service.search.scorer import ScoredCandidates, similarity_score

Places = tuple[Indices, Indices]

# Pairs that are multiplied at a time, and those looked at at a time, which stay in the processor's cache.
_BLOCK = 2**22
_AT_ONCE = 2**18


@dataclass(frozen=True)
class GalleryLabels:
    """Labels of n items as numbers; an item without a label has a number of its own from `n_labels` on."""

    groups: Ints
    n_labels: int

    @property
    def is_labelled(self) -> Mask:
        """(n,) whether an item has a label."""
        return self.groups < self.n_labels

    @property
    def code_type(self) -> np.dtype[np.unsignedinteger]:
        """Smallest type that holds a label's number."""
        return np.dtype(np.min_scalar_type(self.n_labels))

    @cached_property
    def codes(self) -> Codes:
        """(n,) number of each item's label; `n_labels`, which no query has, without one."""
        return np.minimum(self.groups, self.n_labels).astype(self.code_type)

    @cached_property
    def by_label(self) -> tuple[Ints, Ints]:
        """(n,) positions by label, ascending for each, and (n_labels + 1,) where those of each begin."""
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(self.n_labels + 1))

    def of_label(self, code: int) -> Ints:
        """Positions of the items of a label, ascending."""
        order, first = self.by_label
        return order[first[code] : first[code + 1]]


@dataclass(frozen=True)
class QueryMates:
    """Best mates of n queries: the score is -inf and the item -1 without one."""

    best_scores: Floats
    best_items: Ints

    @property
    def has_mate(self) -> Mask:
        """(n,) whether each has a mate."""
        return self.best_items >= 0


@dataclass(frozen=True)
class PairScores:
    """Scores of all pairs by space, and `final`; in a space of embeddings 1 - d / 2, d the L2 distance."""

    mate_queries: Ints
    mate_items: Ints
    mate_scores: dict[str, Floats]
    non_mates: dict[str, ListedPairs]
    n_negatives: Ints
    mates: QueryMates


@dataclass(frozen=True)
class _Part:
    """Some pairs of a block: `few` are rows, counted from query `start`, `columns` items."""

    start: int
    few: slice
    columns: slice

    @property
    def rows(self) -> slice:
        """Rows of the queries."""
        return slice(self.start + self.few.start, self.start + self.few.stop)


class PairScoring:
    """Collects the pairs of queries with a gallery; `both_ways` where each labelled item is a query once."""

    def __init__(
        self,
        labels: GalleryLabels,
        codes: Codes,
        spaces: Mapping[str, SearchSpace],
        *,
        context_weight: float,
        both_ways: bool = False,
        multiply: BlockProducts = exact_products,
    ) -> None:
        self._labels = labels
        self._is_labelled = labels.is_labelled
        self._all_labelled = bool(self._is_labelled.all())
        self._codes = codes
        self._spaces = spaces
        self._context_weight = context_weight
        self._multiply = multiply
        n_listed = listed_of(len(codes) * int(self._is_labelled.sum()), labels.n_labels)
        form = partial(NegativePairs, codes, labels.n_labels, most_listed=n_listed, both_ways=both_ways)
        # By similarity; in the last space without those that a search fetches, whose scores are kept here.
        self._negatives = {name: form(lowest=-1) for name in spaces}
        self._fetched: list[Floats] = []
        self._mates: dict[str, list[Floats]] = {name: [] for name in (*spaces, "final")}
        self._mate_places: list[tuple[Ints, Ints]] = []
        self._n_negatives = np.zeros(len(codes), dtype=np.int64)
        self._best = QueryMates(np.full(len(codes), -np.inf), np.full(len(codes), -1))

    def add(
        self,
        rows: slice,
        compared: Sequence[FloatArray],
        scored: ScoredCandidates,
        excluded: Sequence[Ints],
    ) -> None:
        """Score some queries, (B, d) in each space, with every item."""
        n, n_rows = len(self._labels.groups), rows.stop - rows.start
        width = max(1, _BLOCK // n_rows)
        for start in range(0, n, width):
            columns = slice(start, min(start + width, n))
            spaces = zip(self._spaces.items(), compared, strict=True)
            wide = {
                name: space.similarities(given, excluded, columns, self._multiply)
                for (name, space), given in spaces
            }
            height = max(1, _AT_ONCE // (columns.stop - start))
            for first in range(0, n_rows, height):
                part = slice(first, min(first + height, n_rows))
                self._add_part(_Part(rows.start, part, columns), wide, scored, excluded[part])

    def collected(self) -> PairScores:
        """All pairs so far."""
        queries, items = (np.concatenate(parts) for parts in zip(*self._mate_places, strict=True))
        similar = {name: pairs.collected() for name, pairs in self._negatives.items()}
        *_, last = similar
        fetched = ListedPairs(*self._negatives[last].apart(), None)
        by_score = replace(fetched, scores=np.concatenate(self._fetched))
        non_mates = {name: pairs.rescored(_closeness) for name, pairs in similar.items() if name != last}
        whole = similar[last].with_more(fetched, self._codes)
        non_mates[last] = whole.rescored(_closeness)
        non_mates["final"] = similar[last].rescored(self._score).with_more(by_score, self._codes)
        return PairScores(
            mate_queries=queries,
            mate_items=items,
            mate_scores={name: np.concatenate(parts) for name, parts in self._mates.items()},
            non_mates=non_mates,
            n_negatives=self._n_negatives,
            mates=self._best,
        )

    def _add_part(
        self,
        part: _Part,
        wide: Mapping[str, Floats],
        scored: ScoredCandidates,
        excluded: Sequence[Ints],
    ) -> None:
        mates, out = self._kinds(part, excluded)
        places, scores = _fetched(scored, part)
        queries, labels = np.arange(part.rows.start, part.rows.stop), self._labels.codes[part.columns]
        *_, last = wide
        for name, similarities in wide.items():
            few, pairs = similarities[part.few], self._negatives[name]
            mate_similarities = few[mates]
            self._mates[name].append(_closeness(mate_similarities))
            few[mates] = few[out] = pairs.no_pair
            if not self._all_labelled:
                few[:, ~self._is_labelled[part.columns]] = pairs.no_pair
            apart = None
            if name == last:
                is_pair = few[places] > pairs.no_pair
                apart = places[0][is_pair], places[1][is_pair]
                self._fetched.append(scores[is_pair])
            pairs.add(few, queries, labels, apart=apart)
        # The last space's block has served: the scores of mates meet those of candidates in it.
        few[mates] = self._score(mate_similarities)
        few[places] = scores
        mate_scores = few[mates]
        self._mates["final"].append(mate_scores)
        self._mate_places.append((mates[0] + part.rows.start, mates[1] + part.columns.start))
        self._update_best(*self._mate_places[-1], mate_scores)

    def _update_best(self, queries: Ints, items: Ints, scores: Floats) -> None:
        """Take over mates that score higher than those so far."""
        if not len(queries):
            return
        # The highest of each query, the first of equals: queries come one after the other, items ascending.
        starts = np.flatnonzero(np.diff(queries, prepend=-1))
        rows, highest, best = queries[starts], np.maximum.reduceat(scores, starts), self._best
        is_highest = np.flatnonzero(scores == np.repeat(highest, np.diff(starts, append=len(queries))))
        first = is_highest[np.searchsorted(is_highest, starts)]
        better = highest > best.best_scores[rows]
        best.best_scores[rows[better]] = highest[better]
        best.best_items[rows[better]] = items[first[better]]

    def _kinds(self, part: _Part, excluded: Sequence[Ints]) -> tuple[Places, Places]:
        """Row and column of the positive pairs in a part, and of what else is no negative pair."""
        columns, codes = part.columns, self._codes[part.rows].astype(np.int64)
        out = np.repeat(np.arange(len(excluded)), [len(one) for one in excluded]), np.concatenate(excluded)
        mates = self._items_of(codes)
        n = len(self._labels.groups)
        is_out = np.isin(mates[0] * n + mates[1], out[0] * n + out[1])
        mates, out = (
            (rows[here], items[here] - columns.start)
            for rows, items, here in (
                (*mates, ~is_out & (mates[1] >= columns.start) & (mates[1] < columns.stop)),
                (*out, (out[1] >= columns.start) & (out[1] < columns.stop)),
            )
        )
        is_labelled = self._is_labelled[columns]
        n_none = np.bincount(np.concatenate([mates[0], out[0][is_labelled[out[1]]]]), minlength=len(codes))
        self._n_negatives[part.rows] += np.count_nonzero(is_labelled) - n_none
        return mates, out

    def _items_of(self, codes: Ints) -> Places:
        """Row and position of all items with the label of each row, ascending."""
        order, first_of = self._labels.by_label
        first, sizes = first_of[codes], first_of[codes + 1] - first_of[codes]
        rows = np.repeat(np.arange(len(codes)), sizes)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows, order[first[rows] + within]

    def _score(self, similarities: Floats) -> Floats:
        """Score of a pair that no search fetches."""
        return similarity_score(similarities.astype(np.float32), self._context_weight)


def _closeness(similarities: Floats) -> Floats:
    """1 - d / 2 with the L2 distance d of embeddings."""
    return 1.0 - np.sqrt(2.0 - 2.0 * similarities) / 2.0


def _fetched(scored: ScoredCandidates, part: _Part) -> tuple[Places, Floats]:
    """Row and column of the candidates in a part, and their scores."""
    positions, columns = scored.positions[part.few], part.columns
    rows, places = np.nonzero((positions >= columns.start) & (positions < columns.stop))
    return (rows, positions[rows, places] - columns.start), scored.scores[part.few][rows, places]
