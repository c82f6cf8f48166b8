"""A neighbor graph of millions of synthetic items in minutes: nearest items of the same and the next cells.

The exact graph compares all pairs, which takes hours from a million items on. Here every item is compared
with the items of its own k-means cell and of the cells nearest to that one; the similarities are exact, the
lists miss neighbors that lie further off. Only for measurements that do not ask who is found.
"""

from __future__ import annotations

import faiss
import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, NeighborGraph

__all__ = ["cell_graph"]

_SAMPLE = 50_000
_BLOCK = 65_536


def cell_graph(embeddings: FloatArray, *, n_cells: int = 1000, n_probed: int = 3) -> NeighborGraph:
    """Neighbor lists found cell by cell.

    Args:
        embeddings: (n, d) float32, L2-normalized.
        n_cells: Number of k-means cells.
        n_probed: Cells that the items of one are compared with, its own among them.
    """
    n, dim = embeddings.shape
    means = faiss.Kmeans(dim, n_cells, niter=6, seed=0, spherical=True, max_points_per_centroid=50)
    means.train(np.ascontiguousarray(embeddings[np.random.default_rng(0).choice(n, min(n, _SAMPLE), False)]))
    centroids = means.centroids.reshape(-1, dim)
    cell_of = np.concatenate(
        [(embeddings[first : first + _BLOCK] @ centroids.T).argmax(1) for first in range(0, n, _BLOCK)]
    )
    order = np.argsort(cell_of, kind="stable")
    bounds = np.searchsorted(cell_of[order], np.arange(n_cells + 1))
    members = [order[bounds[cell] : bounds[cell + 1]] for cell in range(n_cells)]
    nearest_cells = np.argsort(-(centroids @ centroids.T), axis=1)[:, :n_probed]
    graph = NeighborGraph(
        np.full((n, N_NEIGHBORS), -1, np.int32), np.full((n, N_NEIGHBORS), -np.inf, np.float32)
    )
    for cell, rows in enumerate(members):
        others = np.concatenate([members[near] for near in nearest_cells[cell]])
        _fill(graph, embeddings, rows, others)
    return graph


def _fill(graph: NeighborGraph, embeddings: FloatArray, rows: np.ndarray, others: np.ndarray) -> None:
    if not len(rows):
        return
    similarities = embeddings[rows] @ embeddings[others].T
    similarities[rows[:, None] == others] = -np.inf
    width = min(N_NEIGHBORS, len(others) - 1)
    if width < 1:
        return
    near = np.argpartition(-similarities, width - 1, axis=1)[:, :width]
    found = np.take_along_axis(similarities, near, axis=1)
    ranked = np.argsort(-found, axis=1)
    graph.ids[rows, :width] = others[np.take_along_axis(near, ranked, axis=1)]
    graph.similarities[rows, :width] = np.take_along_axis(found, ranked, axis=1)
