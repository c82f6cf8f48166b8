"""Contexts: the neighbors that refine an item or a query, nearest first, in the initial space."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.indexer.graph.neighbor_graph import SPARE_NEIGHBORS
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import FloatArray, exact_similarities
from vicinal.refine.neighbor_features import neighborhood_radii

__all__ = ["context_radii", "item_contexts", "query_context"]

Positions = npt.NDArray[np.int64]
_NOBODY: Positions = np.empty(0, np.int64)


def item_contexts(
    view: GalleryView, positions: Positions, k: int, excluded: Positions = _NOBODY
) -> Positions:
    """The first k neighbors in the items' lists that are still in the gallery.

    Args:
        view: The state of the gallery.
        positions: (m,) positions of the items.
        k: Neighbors of a context.
        excluded: Positions that count as not in the gallery.

    Returns:
        (m, k) positions, nearest first, -1 where a list has no more.
    """
    listed = view.neighbor_positions(positions)
    gone = (listed < 0) | np.isin(listed, excluded)
    order = np.argsort(gone, axis=1, kind="stable")[:, :k]
    contexts = np.take_along_axis(np.where(gone, -1, listed), order, axis=1)
    return _padded(contexts.astype(np.int64), k)


def query_context(
    view: GalleryView,
    query: FloatArray,
    k: int,
    excluded: Positions = _NOBODY,
    item: int | None = None,
) -> Positions:
    """The k nearest items of a query, as its context.

    Args:
        view: The state of the gallery.
        query: (d,) float32, L2-normalized.
        k: Neighbors of the context.
        excluded: Positions that count as not in the gallery.
        item: Position of the query where it is an item. Its context is then the one that the item was refined
            with, from its list; only where that runs out is it searched for anew.

    Returns:
        (k,) positions, nearest first, ties by position, -1 where there are fewer.
    """
    if item is not None:
        row = np.array([item])
        listed = item_contexts(view, row, k, excluded)[0]
        # A list with an end holds all there are.
        if (listed >= 0).all() or not np.isfinite(view.neighbor_similarities(row)[0, -1]):
            return listed
        excluded = np.union1d(excluded, row)
    if not len(view):
        return np.full(k, -1, np.int64)
    n_fetched = min(len(view), k + SPARE_NEIGHBORS + len(excluded))
    found = view.nearest(query[None], n_fetched)[0]
    similarities = exact_similarities(query, view.vectors(found))
    similarities[(found < 0) | np.isin(found, excluded)] = -np.inf
    order = np.lexsort((found, -similarities))[:k]
    return _padded(np.where(np.isfinite(similarities[order]), found[order], -1)[None], k)[0]


def context_radii(view: GalleryView, context: Positions, excluded: Positions = _NOBODY) -> FloatArray:
    """Radii of the neighbors that refine a query, from their own lists; see `refine.neighbor_features`.

    Args:
        view: The state of the gallery.
        context: (k,) positions, -1 where there is none.
        excluded: Positions that count as not in the gallery.

    Returns:
        (k, 3) float32, 0 where there is no neighbor.
    """
    similarities = view.neighbor_similarities(context)
    listed = view.neighbor_positions(context)
    gone = (listed < 0) | np.isin(listed, excluded) | (context < 0)[:, None]
    order = np.argsort(gone, axis=1, kind="stable")
    kept = np.where(gone, np.float32(-np.inf), similarities)
    return neighborhood_radii(np.take_along_axis(kept, order, axis=1))


def _padded(contexts: Positions, k: int) -> Positions:
    """The same with k columns: a sum of k numbers does not depend on how many of them there are."""
    return np.pad(contexts, ((0, 0), (0, k - contexts.shape[1])), constant_values=-1)
