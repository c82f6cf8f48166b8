"""Neighbor graph: the nearest other items of every item, exact, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.indexer.graph.vector_index import import_faiss
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.similarity import FloatArray, exact_similarities

__all__ = ["N_NEIGHBORS", "SPARE_NEIGHBORS", "NeighborGraph", "build_neighbor_graph", "nearest_others"]

N_NEIGHBORS = 32
# Float32 products can swap neighbors of almost equal similarity; these are re-scored and cut off.
SPARE_NEIGHBORS = 8
_BLOCK = 1024


@dataclass(frozen=True)
class NeighborGraph:
    """Nearest other items, nearest first, ties by position.

    Attributes:
        ids: (n, K) int32 positions, -1 where there are fewer than K others.
        similarities: (n, K) float32 exact cosine similarities, -inf where there are fewer.
    """

    ids: npt.NDArray[np.int32]
    similarities: FloatArray


def build_neighbor_graph(
    embeddings: FloatArray,
    n_neighbors: int = N_NEIGHBORS,
    *,
    on_progress: OnProgress = no_progress,
) -> NeighborGraph:
    """Find the nearest other items of every item.

    An item is left out of its own list because of its position, not because it comes first: a
    duplicate may come before it.

    Args:
        embeddings: (n, d) float32, L2-normalized.
        n_neighbors: Length K of the lists.
        on_progress: Called with `neighbors`, the number of finished items and n.
    """
    n = len(embeddings)
    ids = np.full((n, n_neighbors), -1, dtype=np.int32)
    similarities = np.full((n, n_neighbors), -np.inf, dtype=np.float32)
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, n))
        found, scores = nearest_others(embeddings, rows, n_neighbors)
        ids[rows, : found.shape[1]] = found
        similarities[rows, : found.shape[1]] = scores
        on_progress("neighbors", int(rows[-1]) + 1, n)
    return NeighborGraph(ids, similarities)


def nearest_others(
    embeddings: FloatArray, rows: npt.NDArray[np.int64], n_neighbors: int
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Nearest other items of some items, exact.

    Args:
        embeddings: (n, d) float32, L2-normalized.
        rows: (b,) positions of the items.
        n_neighbors: Most neighbors an item.

    Returns:
        (b, w) positions and exact similarities, nearest first, ties by position; w is smaller than
        `n_neighbors` where there are fewer others.
    """
    faiss = import_faiss()
    queries = np.ascontiguousarray(embeddings[rows])
    n_fetched = min(len(embeddings), n_neighbors + 1 + SPARE_NEIGHBORS)
    _, found = faiss.knn(queries, embeddings, n_fetched, metric=faiss.METRIC_INNER_PRODUCT)
    exact = exact_similarities(queries, embeddings[found])
    exact[found == rows[:, None]] = -np.inf
    order = np.lexsort((found, -exact), axis=1)[:, : min(n_neighbors, len(embeddings) - 1)]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(exact, order, axis=1)
