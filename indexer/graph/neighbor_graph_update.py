"""Neighbor graph after changes: the exact lists of all items, from the lists of those that stayed.

Adding items can only push others out of a list, so a list that lost no neighbor is the merge of itself and
the nearest added items. Lists that lost one are searched again, as are those of the added items.
"""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, ShortInts
from vicinal.indexer.graph.neighbor_graph import (
    SPARE_NEIGHBORS,
    NeighborGraph,
    nearest_first,
    nearest_others,
)
from vicinal.indexer.graph.vector_index import nearest_rows
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.similarity import exact_similarities

_BLOCK = 1024


def update_neighbor_graph(
    graph: NeighborGraph,
    kept: Ints,
    embeddings: FloatArray,
    *,
    on_progress: OnProgress = no_progress,
) -> NeighborGraph:
    """Lists as if built anew after all but `kept` items, (k,) ascending, left and others were appended."""
    n, n_kept, width = len(embeddings), len(kept), graph.ids.shape[1]
    ids = np.full((n, width), -1, dtype=np.int32)
    similarities = np.full((n, width), -np.inf, dtype=np.float32)
    ids[:n_kept], similarities[:n_kept] = _moved(graph, kept)
    lost = ((graph.ids[kept] >= 0) & (ids[:n_kept] < 0)).any(axis=1)
    again = np.concatenate([np.flatnonzero(lost), np.arange(n_kept, n)])
    whole = np.flatnonzero(~lost)
    for start in range(0, len(again), _BLOCK):
        rows = again[start : start + _BLOCK]
        found, scores = nearest_others(embeddings, rows, width)
        ids[rows], similarities[rows] = -1, -np.inf
        ids[rows, : found.shape[1]], similarities[rows, : found.shape[1]] = found, scores
        on_progress("neighbors", min(start + _BLOCK, len(again)), n)
    for start in range(0, len(whole) if n > n_kept else 0, _BLOCK):
        rows = whole[start : start + _BLOCK]
        listed = NeighborGraph(ids[rows], similarities[rows])
        merged = _with_added(listed, embeddings[rows], embeddings[n_kept:], n_kept)
        ids[rows], similarities[rows] = merged.ids, merged.similarities
        on_progress("neighbors", len(again) + min(start + _BLOCK, len(whole)), n)
    on_progress("neighbors", n, n)
    return NeighborGraph(ids, similarities)


def _moved(graph: NeighborGraph, kept: Ints) -> tuple[ShortInts, FloatArray]:
    """Lists of the items that stayed, over their new positions, -1 for neighbors that are gone."""
    moved_to = np.full(len(graph.ids) + 1, -1, dtype=np.int32)
    # The last entry stands for the padding, which -1 points to.
    moved_to[kept] = np.arange(len(kept))
    return moved_to[graph.ids[kept]], np.asarray(graph.similarities[kept])


def _with_added(
    listed: NeighborGraph, embeddings: FloatArray, added: FloatArray, first: int
) -> NeighborGraph:
    """Lists merged with the nearest of the added items, whose positions begin at `first`."""
    width, queries = listed.ids.shape[1], np.ascontiguousarray(embeddings)
    found = nearest_rows(queries, added, min(len(added), width + SPARE_NEIGHBORS))[1]
    ids = np.concatenate([listed.ids, found + first], axis=1)
    scores = np.concatenate([listed.similarities, exact_similarities(queries, added[found])], axis=1)
    ids, scores = nearest_first(ids, scores, width)
    return NeighborGraph(ids.astype(np.int32), scores)
