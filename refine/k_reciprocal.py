"""k-reciprocal re-ranking: two images are alike when they are near to the same images, and these to them.

Zhun Zhong et al., "Re-ranking Person Re-identification with k-reciprocal Encoding" (CVPR 2017), in a form
in which no score depends on who else is asked about. As published, distances are divided by their maximum
over the current queries and gallery, and a query changes the encodings of the items; here the encodings are
those of the gallery G alone, with the squared distances D = 2 - 2 s as they are:

    N(i, k)  = { j : D_ij <= D_i(k) }       D_i(k): distance of i to its k-th nearest other item, ties in
    R(i, k)  = { j : j in N(i, k) and i in N(j, k) }, and i itself
    R*(i)    = R(i, k1) and every R(m, k1 // 2), m in R(i, k1), more than 2/3 of which lie in R(i, k1)
    e_i      = exp(-D_ij) for j in R*(i), else 0, divided by its sum
    V_i      = mean of e_j over i and the k2 - 1 items nearest to it, ties in

A query q that is no item has no place of its own in an encoding. Its R(q) are those of its k1 + 1 nearest
items j with D_qj <= D_j(k1), so that a copy of an item gets the item's encoding; R*(q), e_q and V_q follow in
the same way, and e_q = 0 where R(q) is empty.

    d_J      = 1 - sum min(V_q, V_j) / sum max(V_q, V_j)
    score    = (1 - lam) (1 - d_J) + lam exp(2 s_qj - 2)

The e_i are computed once for a gallery and stored. The V_i follow from them for the candidates of a query
only, so that k2 and lam can be chosen with every call, and nothing takes time that grows with the gallery.

This is exact as long as the stored lists of K neighbors hold what the formulas ask for. Of more than K - k1
items at the very distance D_i(k1), the last by position are left out. Where more than K - k1 of an item's
neighbors are removed, its D(k1) is that of the last one listed, which is at most the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyFloats, AnyInts, FloatArray, Floats, Ints, Mask
from vicinal.models.similarity import exact_similarities


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a matrix (CSR): `indptr[i]:indptr[i + 1]` of the other two is row i, its columns ascending."""

    indptr: Ints
    indices: AnyInts
    values: AnyFloats

    @classmethod
    def from_sorted(cls, owners: Ints, indices: AnyInts, values: AnyFloats, n: int) -> Self:
        """Rows from (nnz,) entries that are sorted by row and column."""
        return cls(np.searchsorted(owners, np.arange(n + 1)), indices, values)

    @classmethod
    def concatenated(cls, parts: Sequence[SparseRows]) -> Self:
        """The rows of all parts, one part after another; at least one part."""
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Ints:
        """(n,) number of entries of each row."""
        return np.diff(self.indptr)

    @property
    def owners(self) -> Ints:
        """(nnz,) row of each entry."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, rows: Ints) -> SparseRows:
        """Some rows, in the given order."""
        starts = np.asarray(self.indptr[rows])
        sizes = np.asarray(self.indptr[rows + 1]) - starts
        entries = ranges(starts, sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return SparseRows(indptr, np.asarray(self.indices[entries]), np.asarray(self.values[entries]))


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """`starts[0], starts[0] + 1, ...` for `sizes[0]` numbers, then the same for the next, as one array."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


DEFAULT_K1 = 20
_NOBODY: Ints = np.empty(0, np.int64)
# Rows, pairs of vectors and candidates at a time: what keeps the intermediate arrays at some ten megabytes.
_BLOCK = 512
_PAIRS = 16_384
_CANDIDATES = 128


class NeighborLists(Protocol):
    """The stored vectors and neighbors of a gallery's items, by position."""

    def vectors(self, positions: Ints) -> FloatArray:
        """(..., d) L2-normalized embeddings at (...) positions."""

    def neighbor_positions(self, positions: Ints) -> AnyInts:
        """(..., K) positions of the nearest others, nearest first; -1 for gone ones and for padding."""

    def neighbor_similarities(self, positions: Ints) -> FloatArray:
        """(..., K) similarities to them, descending, of gone ones too; -inf where there are fewer."""


@dataclass(frozen=True, eq=False)
class ItemLists:
    """Neighbor lists of a gallery that is held in arrays.

    Each of the (n, d) float32 embeddings, L2-normalized, has (n, K) positions of the nearest others, nearest
    first, -1 where there are fewer, and (n, K) float32 similarities to them, there -inf.
    """

    embeddings: FloatArray
    ids: AnyInts
    similarities: FloatArray

    def vectors(self, positions: Ints) -> FloatArray:
        """(..., d) embeddings at (...) positions."""
        return np.asarray(self.embeddings[positions])

    def neighbor_positions(self, positions: Ints) -> AnyInts:
        """(..., K) positions of the nearest others."""
        return np.asarray(self.ids[positions])

    def neighbor_similarities(self, positions: Ints) -> FloatArray:
        """(..., K) similarities to the nearest others."""
        return np.asarray(self.similarities[positions])


@dataclass(frozen=True, eq=False)
class ReciprocalGraph:
    """A gallery as the re-ranking sees it.

    Attributes:
        k1: Neighbors that can be reciprocal, 2 to the length K of the lists.
        encodings: The e_i of the first positions, see `reciprocal_encodings`; others are made when needed.
        removed: Positions that count as not in the gallery. With any, no stored encoding is used, because
            each may know one of them.
        has_gone: Whether the lists may name neighbors as gone; the encodings must not know those.
    """

    lists: NeighborLists
    n: int
    k1: int = DEFAULT_K1
    encodings: SparseRows | None = None
    removed: Ints = field(default_factory=lambda: _NOBODY)
    has_gone: bool = False

    def __post_init__(self) -> None:
        if self.k1 < 2:
            raise ValueError(f"k1 must be at least 2, got {self.k1}")

    def without(self, positions: npt.ArrayLike) -> ReciprocalGraph:
        """The same gallery as if some items were not in it."""
        removed = np.asarray(positions, dtype=np.int64)
        return replace(self, removed=removed) if len(removed) else self

    @property
    def is_whole(self) -> bool:
        """Tell if every listed neighbor is there."""
        return not (self.has_gone or len(self.removed))

    def radius(self, positions: Ints, k: int) -> FloatArray:
        """Similarity of items to their k-th nearest other, k up to K; -inf where there are fewer than k."""
        if self.is_whole:
            lists = self.lists.neighbor_similarities(positions)
            return lists[:, _column(lists, k)]
        unique, places = np.unique(positions, return_inverse=True)
        lists = self.lists.neighbor_similarities(unique)
        gone = self._is_gone(self.lists.neighbor_positions(unique))
        radius, touched = lists[:, _column(lists, k)].copy(), gone.any(axis=1)
        # Where a full list runs out its last similarity stands in: the true one is at most that.
        kept = np.where(gone[touched], lists[touched, -1:], lists[touched])
        radius[touched] = -np.partition(-kept, k - 1, axis=1)[:, k - 1]
        return radius[places]

    def encode(self, rows: Ints) -> SparseRows:
        """The e_i of some items: the stored ones, or computed where there are none."""
        if self.encodings is None or len(self.removed):
            return self._computed(rows)
        is_stored = rows < len(self.encodings)
        if is_stored.all():
            return self.encodings.take(rows)
        stored, computed = self.encodings.take(rows[is_stored]), self._computed(rows[~is_stored])
        places = np.argsort(np.concatenate([np.flatnonzero(is_stored), np.flatnonzero(~is_stored)]))
        return SparseRows.concatenated([stored, computed]).take(places)

    def _computed(self, rows: Ints) -> SparseRows:
        return _encode(self.lists.vectors(rows), self.neighbors(rows, self.k1, mutual=True), self)

    def _is_gone(self, ids: AnyInts) -> Mask:
        return np.asarray((ids < 0) | np.isin(ids, self.removed))

    def neighbors(self, rows: Ints, k: int, *, mutual: bool) -> SparseRows:
        """R(i, k) where `mutual`, else N(i, k) and i itself, only i where k is 0; values are similarities."""
        ids, lists = self.lists.neighbor_positions(rows), self.lists.neighbor_similarities(rows)
        inside = ~self._is_gone(ids) & (lists >= (self.radius(rows, k)[:, None] if k else np.inf))
        owners = np.nonzero(inside)[0]
        members, values = ids[inside].astype(np.int64), lists[inside]
        if mutual:
            # Both items hold the same number as their similarity.
            kept = values >= self.radius(members, k)
            owners, members, values = owners[kept], members[kept], values[kept]
        owners = np.concatenate([owners, np.arange(len(rows))])
        members = np.concatenate([members, rows])
        values = np.concatenate([values, np.ones(len(rows), np.float32)])
        order = np.argsort(owners * self.n + members)
        return SparseRows.from_sorted(owners[order], members[order], values[order], len(rows))


def _column(lists: FloatArray, k: int) -> int:
    if not 1 <= k <= lists.shape[1]:
        raise ValueError(f"the lists hold {lists.shape[1]} neighbors, which leaves no {k}-th one")
    return k - 1


def reciprocal_encodings(
    graph: ReciprocalGraph, *, on_progress: Callable[[int, int], None] | None = None
) -> SparseRows:
    """The e_i of all items of a gallery, block by block: float32 rows that sum to 1."""
    bare = replace(graph, encodings=None)
    blocks = [SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))]
    for start in range(0, graph.n, _BLOCK):
        stop = min(start + _BLOCK, graph.n)
        blocks.append(bare.encode(np.arange(start, stop)))
        if on_progress:
            on_progress(stop, graph.n)
    return SparseRows.concatenated(blocks)


def k_reciprocal_scores(
    queries: FloatArray,
    positions: Ints,
    similarities: FloatArray,
    graphs: ReciprocalGraph | Sequence[ReciprocalGraph],
    *,
    k2: int = 6,
    lam: float = 0.3,
) -> tuple[Floats, Floats]:
    """Score each query's candidates.

    Each query is scored on its own: no score depends on the batch. A query that is itself an item of the
    gallery is scored as if it were not: take it out of its own candidates, and give the graph `without` it.

    Args:
        queries: (B, d) float32, L2-normalized.
        positions: (B, n) positions of the candidates, most similar first, -1 for padding. They must hold the
            k1 + 1 nearest items and all that are tied with the last of these.
        similarities: (B, n) exact cosine similarities of the candidates, descending, -inf for padding.
        k2: Items, the query itself counted, over which an encoding is averaged; 1 does not average.
        lam: Weight of the similarity, in [0, 1].

    Returns:
        (B, n) scores in [0, 1], -inf for padding, and (B, n) Jaccard similarities 1 - d_J in [0, 1].
    """
    if k2 < 1:
        raise ValueError(f"k2 must be at least 1, got {k2}")
    views = [graphs] * len(queries) if isinstance(graphs, ReciprocalGraph) else graphs
    jaccard = np.zeros(similarities.shape)
    for row, (query, graph) in enumerate(zip(queries, views, strict=True)):
        valid = np.isfinite(similarities[row])
        candidates = positions[row, valid], similarities[row, valid]
        jaccard[row, valid] = _jaccard_similarities(query, *candidates, graph, k2)
    closeness = np.exp(2.0 * similarities.astype(np.float64) - 2.0)
    # The two weights can sum to a little more than 1.
    scores = np.minimum((1.0 - lam) * jaccard + lam * closeness, 1.0)
    return np.where(np.isfinite(similarities), scores, -np.inf), jaccard


def _encode(vectors: FloatArray, reciprocal: SparseRows, graph: ReciprocalGraph) -> SparseRows:
    """Encodings e of vectors whose R(., k1) are given: expanded, weighted, normalized."""
    n = graph.n
    known = reciprocal.owners * n + reciprocal.indices
    added = _expansion(reciprocal, known, graph)
    owners, members = np.divmod(added, n)
    extra = _pair_similarities(vectors, owners, graph.lists, members)
    order = np.argsort(np.concatenate([known, added]))
    owners, members = np.divmod(np.concatenate([known, added])[order], n)
    similarities = np.concatenate([reciprocal.values, extra])[order].astype(np.float64)
    weights = np.exp(2.0 * similarities - 2.0)
    sums = np.bincount(owners, weights, minlength=len(vectors))
    values = (weights / sums[owners]).astype(np.float32)
    return SparseRows.from_sorted(owners, members.astype(np.int32), values, len(vectors))


def _expansion(reciprocal: SparseRows, known: Ints, graph: ReciprocalGraph) -> Ints:
    """Members of R* beyond R, as sorted keys owner * n + member; `known` are the keys of R, sorted."""
    n = graph.n
    middle, places = np.unique(reciprocal.indices, return_inverse=True)
    halves = graph.neighbors(middle.astype(np.int64), max(1, graph.k1 // 2), mutual=True)
    sizes = halves.sizes[places]
    # One row of `halves` for every pair of an owner and a member of its set.
    pairs = np.repeat(np.arange(len(places)), sizes)
    members = halves.indices[ranges(halves.indptr[:-1][places], sizes)]
    keys = reciprocal.owners[pairs] * n + members
    shared = _is_in(keys, known)
    overlaps = np.bincount(pairs, shared, minlength=len(places))
    accepted = 3 * overlaps > 2 * sizes
    return np.unique(keys[accepted[pairs] & ~shared])


def _is_in(keys: Ints, known: Ints) -> Mask:
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[places] == keys


def _pair_similarities(vectors: FloatArray, rows: Ints, lists: NeighborLists, positions: Ints) -> FloatArray:
    """(P,) similarity of `vectors[rows[p]]` and the item at `positions[p]`."""
    similarities = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _PAIRS):
        part = slice(start, start + _PAIRS)
        items = lists.vectors(positions[part])
        similarities[part] = exact_similarities(vectors[rows[part]], items[:, None])[:, 0]
    return similarities


def _jaccard_similarities(
    query: FloatArray, positions: Ints, similarities: FloatArray, graph: ReciprocalGraph, k2: int
) -> Floats:
    """(n,) 1 - d_J of one query and its candidates, which are sorted by similarity, without padding."""
    columns, weights = _query_encoding(query, positions, similarities, graph, k2)
    shared = np.empty(len(positions))
    for start in range(0, len(positions), _CANDIDATES):
        part = slice(start, start + _CANDIDATES)
        shared[part] = _shared_weight(columns, weights, positions[part], graph, k2)
    # Minimum and maximum add up to both sums, and an item's encoding sums to 1.
    return np.clip(shared / (weights.sum() + 1.0 - shared), 0.0, 1.0)


def _query_encoding(
    query: FloatArray, positions: Ints, similarities: FloatArray, graph: ReciprocalGraph, k2: int
) -> tuple[Ints, Floats]:
    """Columns of V_q that are not zero, ascending, and their values."""
    near = similarities >= _kth(similarities, graph.k1 + 1)
    near &= similarities >= graph.radius(positions, graph.k1)
    order = np.argsort(positions[near])
    members, values = positions[near][order], similarities[near][order]
    own = _encode(query[None], SparseRows(np.array([0, len(members)]), members, values), graph)
    averaged = positions[similarities >= _kth(similarities, k2 - 1)] if k2 > 1 else _NOBODY
    others = graph.encode(averaged)
    columns, places = np.unique(np.concatenate([own.indices, others.indices]), return_inverse=True)
    sums = np.bincount(places, np.concatenate([own.values, others.values]), minlength=len(columns))
    return columns.astype(np.int64), sums / (1 + len(averaged))


def _shared_weight(
    columns: Ints, weights: Floats, positions: Ints, graph: ReciprocalGraph, k2: int
) -> Floats:
    """(n,) sum of min(V_q, V_j) over the columns of the query's encoding, which it gives."""
    averaged = graph.neighbors(positions, k2 - 1, mutual=False)
    items, places = np.unique(averaged.indices, return_inverse=True)
    found = graph.encode(items.astype(np.int64, copy=False))
    held = _is_in(found.indices.astype(np.int64), columns)
    encodings = np.zeros((len(items), len(columns)))
    encodings[found.owners[held], np.searchsorted(columns, found.indices[held])] = found.values[held]
    sums = np.add.reduceat(encodings[places], averaged.indptr[:-1], axis=0)
    return np.minimum(sums / averaged.sizes[:, None], weights).sum(axis=1)


def _kth(similarities: FloatArray, k: int) -> float:
    """The k-th largest of descending similarities; -inf where there are fewer."""
    return float(similarities[k - 1]) if k <= len(similarities) else -np.inf
