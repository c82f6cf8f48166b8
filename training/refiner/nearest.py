"""Exact nearest neighbors for contexts, block by block (numpy)."""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.models.similarity import exact_similarities

# Queries that are compared with all items at a time, fewer where that would make more than 64 MiB.
_ROWS = 1024
_BLOCK = 2**24
# Float32 products can swap neighbors of almost equal similarity; these are re-scored and cut off.
_SPARE = 8


def nearest_items(
    queries: FloatArray, items: FloatArray, k: int, *, query_groups: Ints, item_groups: Ints
) -> tuple[Ints, FloatArray]:
    """Find the k nearest items (m, d) of each query (n, d), all L2-normalized, without those of its group.

    The group of a query is its own position to leave out the query itself, its class to leave out all of its
    class, -1 to leave out nothing; those of items are at least 0. Gives (n, k) positions, nearest first, ties
    by position, -1 where there are fewer, and (n, k) exact cosine similarities, there -inf.
    """
    found = np.full((len(queries), k), -1, np.int64)
    similarities = np.full((len(queries), k), -np.inf, np.float32)
    rows = max(1, min(_ROWS, _BLOCK // len(items)))
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        allowed = query_groups[part, None] != item_groups
        nearest, exact = _nearest(queries[part], items, k, allowed)
        found[part, : nearest.shape[1]] = nearest
        similarities[part, : nearest.shape[1]] = exact
    return found, similarities


def _nearest(queries: FloatArray, items: FloatArray, k: int, allowed: Mask) -> tuple[Ints, FloatArray]:
    distances = np.where(allowed, -(queries @ items.T), np.inf)
    n_kept = min(k + _SPARE, len(items))
    kept = np.argpartition(distances, n_kept - 1, axis=1)[:, :n_kept]
    exact = exact_similarities(queries, items[kept])
    exact[~np.take_along_axis(allowed, kept, axis=1)] = -np.inf
    order = np.lexsort((kept, -exact), axis=1)[:, :k]
    similarities = np.take_along_axis(exact, order, axis=1)
    chosen = np.take_along_axis(kept, order, axis=1)
    return np.where(np.isfinite(similarities), chosen, -1), similarities
