"""Contexts: the neighbors that refine an item or a query, nearest first, in the initial space."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.graph.neighbor_graph import SPARE_NEIGHBORS, nearest_first
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities, most_similar
from vicinal.refine.neighbor_features import N_RADII, neighborhood_radii

_NOBODY: Ints = np.empty(0, np.int64)
# Queries whose nearest items are fetched at a time, some 3 MB of 512 dimensions.
_AT_ONCE = 32


def item_contexts(view: GalleryView, positions: Ints, k: int, excluded: Ints = _NOBODY) -> Ints:
    """(m, k) first neighbors in the items' lists that are still in the gallery; -1 where lists end."""
    listed = view.neighbor_positions(positions)
    gone = (listed < 0) | np.isin(listed, excluded)
    order = np.argsort(gone, axis=1, kind="stable")[:, :k]
    contexts = np.take_along_axis(np.where(gone, -1, listed), order, axis=1)
    return _padded(contexts.astype(np.int64), k)


def query_contexts(
    view: GalleryView,
    queries: FloatArray,
    k: int,
    excluded: Sequence[Ints],
    items: Ints | None = None,
) -> Ints:
    """(B, k) nearest items of each query, ties by position, -1 for none: the same alone and in any batch.
    Queries at `items` have the context that they were refined with; what runs out there is searched anew.
    """
    contexts = np.full((len(queries), k), -1, np.int64)
    searched: defaultdict[int, list[int]] = defaultdict(list)
    out = list(excluded)
    for row in range(len(queries)):
        if items is not None:
            listed = _listed_context(view, int(items[row]), k, out[row])
            if listed is not None:
                contexts[row] = listed
                continue
            out[row] = np.union1d(out[row], items[row])
        # What an approximate index finds depends on how many are asked for.
        searched[min(len(view), k + SPARE_NEIGHBORS + len(out[row]))].append(row)
    for n_fetched, rows in searched.items():
        for start in range(0, len(rows) if len(view) else 0, _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            contexts[some] = _nearest(view, queries[some], k, [out[row] for row in some], n_fetched)
    return contexts


def context_radii(view: GalleryView, contexts: Ints, excluded: Sequence[Ints]) -> FloatArray:
    """(B, k, 3) radii of queries' neighbors, of their own lists, 0 at -1; see `refine.neighbor_features`."""
    similarities = view.neighbor_similarities(contexts)
    gone = _gone(view.neighbor_positions(contexts), excluded) | (contexts < 0)[..., None]
    order = np.argsort(gone, axis=-1, kind="stable")
    kept = np.take_along_axis(np.where(gone, np.float32(-np.inf), similarities), order, axis=-1)
    return neighborhood_radii(kept.reshape(contexts.size, -1)).reshape(*contexts.shape, N_RADII)


def _listed_context(view: GalleryView, item: int, k: int, excluded: Ints) -> Ints | None:
    row = np.array([item])
    listed: Ints = item_contexts(view, row, k, excluded)[0]
    # A list with an end holds all there are.
    has_end = not np.isfinite(view.neighbor_similarities(row)[0, -1])
    return listed if has_end or (listed >= 0).all() else None


def _nearest(
    view: GalleryView, queries: FloatArray, k: int, excluded: Sequence[Ints], n_fetched: int
) -> Ints:
    found = view.nearest(queries, n_fetched)
    gone = _gone(found, excluded)
    products = view.products(queries, found)
    products[gone] = -np.inf
    kept = np.arange(len(found))[:, None], most_similar(products, k, queries.shape[1])
    found, gone = found[kept], gone[kept]
    similarities = exact_similarities(queries, view.vectors(found))
    similarities[gone] = -np.inf
    found, similarities = nearest_first(found, similarities, k)
    return _padded(np.where(np.isfinite(similarities), found, -1), k)


def _gone(positions: Ints, excluded: Sequence[Ints]) -> Mask:
    """Mask, of the shape of the positions, of -1 and of what is excluded for its row."""
    gone = positions < 0
    for row, out in enumerate(excluded):
        if len(out):
            gone[row] |= np.isin(positions[row], out)
    return gone


def _padded(contexts: Ints, k: int) -> Ints:
    """Positions with k columns: a sum of k numbers does not depend on how many of them there are."""
    if contexts.shape[1] == k:
        return contexts
    return np.pad(contexts, ((0, 0), (0, k - contexts.shape[1])), constant_values=-1)
