"""Neighbor graph: the nearest other items of every item, scored exactly, block by block.

All pairs are compared on a GPU or up to `EXACT_LIMIT` items; else `graph.cell_lists` misses a few. After
changes, adding items can only push others out of a list, so a list that lost no neighbor is the merge of
itself and the nearest added items. Lists that lost one are searched again, as are those of the added items.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, ShortInts
from vicinal.indexer.cluster import Cluster
from vicinal.indexer.graph.cell_lists import cell_candidates
from vicinal.indexer.graph.gpu import gpu_candidates
from vicinal.indexer.graph.vector_index import import_faiss, nearest_rows
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.similarity import exact_similarities

# Above this, comparing all pairs takes longer than all other stages of an index job together.
EXACT_LIMIT = 100_000
N_NEIGHBORS = 32
# Float32 products can swap neighbors of almost equal similarity; these are re-scored and cut off.
SPARE_NEIGHBORS = 8
_BLOCK = 1024
# Lists that are brought up to date at once.
_UPDATED = 1024
# Rows whose candidates are scored at once: some hundred megabytes a thread.
_SCORED = 256

# Positions of some items, and positions and similarities of their neighbors.
_Lists = tuple[Ints, Ints, FloatArray]


@dataclass(frozen=True)
class NeighborGraph:
    """(n, K) nearest others, in order, ties by position, and exact cosine similarities; -1, -inf for none."""

    ids: ShortInts
    similarities: FloatArray


def build_neighbor_graph(
    embeddings: FloatArray,
    n_neighbors: int = N_NEIGHBORS,
    *,
    device: str = "cpu",
    cluster: Cluster | None = None,
    on_progress: OnProgress = no_progress,
) -> NeighborGraph:
    """Find the nearest others of every item, which is left out by position: a duplicate may come first."""
    n, n_done = len(embeddings), 0
    ids = np.full((n, n_neighbors), -1, dtype=np.int32)
    similarities = np.full((n, n_neighbors), -np.inf, dtype=np.float32)
    for rows, found, scores in _lists(embeddings, n_neighbors, device, cluster, on_progress):
        ids[rows, : found.shape[1]] = found
        similarities[rows, : found.shape[1]] = scores
        n_done += len(rows)
        on_progress("neighbors", n_done, n)
    return NeighborGraph(ids, similarities)


def _lists(
    embeddings: FloatArray, n_neighbors: int, device: str, cluster: Cluster | None, on_progress: OnProgress
) -> Iterator[_Lists]:
    n, n_fetched = len(embeddings), n_neighbors + 1 + SPARE_NEIGHBORS
    if cluster is None:
        candidates = gpu_candidates(embeddings, n_fetched, device, on_progress=on_progress)
        if candidates is not None:
            return _scored(embeddings, candidates, n_neighbors)
    if n <= EXACT_LIMIT:
        return _compared(embeddings, n_neighbors)
    candidates = cell_candidates(embeddings, n_fetched, cluster=cluster, on_progress=on_progress)
    return _scored(embeddings, candidates, n_neighbors)


def nearest_others(embeddings: FloatArray, rows: Ints, n_neighbors: int) -> tuple[Ints, FloatArray]:
    """(b, w) positions of the items nearest to some others, nearest first, ties by position, and their exact
    similarities; w is smaller than `n_neighbors` where there are fewer.
    """
    n_fetched = min(len(embeddings), n_neighbors + 1 + SPARE_NEIGHBORS)
    found = nearest_rows(embeddings[rows], embeddings, n_fetched)[1]
    return _best_others(embeddings, rows, found, n_neighbors)


def _compared(embeddings: FloatArray, n_neighbors: int) -> Iterator[_Lists]:
    for start in range(0, len(embeddings), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(embeddings)))
        yield rows, *nearest_others(embeddings, rows, n_neighbors)


def _scored(embeddings: FloatArray, candidates: ShortInts, n_neighbors: int) -> Iterator[_Lists]:
    """Lists of all items, whose candidates these are."""

    def lists(start: int) -> _Lists:
        rows = np.arange(start, min(start + _SCORED, len(embeddings)))
        return rows, *_best_others(embeddings, rows, candidates[rows].astype(np.int64), n_neighbors)

    with ThreadPoolExecutor(import_faiss().omp_get_max_threads()) as pool:
        yield from pool.map(lists, range(0, len(embeddings), _SCORED))


def _best_others(
    embeddings: FloatArray, rows: Ints, found: Ints, n_neighbors: int
) -> tuple[Ints, FloatArray]:
    """The best of what was found for each row, itself and -1 left out; see `nearest_others`."""
    exact = exact_similarities(np.ascontiguousarray(embeddings[rows]), embeddings[found])
    exact[(found == rows[:, None]) | (found < 0)] = -np.inf
    found, exact = nearest_first(found, exact, min(n_neighbors, len(embeddings) - 1))
    return np.where(np.isfinite(exact), found, -1), exact


def nearest_first(ids: Ints, similarities: FloatArray, n: int) -> tuple[Ints, FloatArray]:
    """The first n of each row, most similar first, ties by position."""
    order = np.lexsort((ids, -similarities), axis=1)[:, :n]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(similarities, order, axis=1)


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
    for start in range(0, len(again), _UPDATED):
        rows = again[start : start + _UPDATED]
        found, scores = nearest_others(embeddings, rows, width)
        ids[rows], similarities[rows] = -1, -np.inf
        ids[rows, : found.shape[1]], similarities[rows, : found.shape[1]] = found, scores
        on_progress("neighbors", min(start + _UPDATED, len(again)), n)
    for start in range(0, len(whole) if n > n_kept else 0, _UPDATED):
        rows = whole[start : start + _UPDATED]
        listed = NeighborGraph(ids[rows], similarities[rows])
        merged = _with_added(listed, embeddings[rows], embeddings[n_kept:], n_kept)
        ids[rows], similarities[rows] = merged.ids, merged.similarities
        on_progress("neighbors", len(again) + min(start + _UPDATED, len(whole)), n)
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
