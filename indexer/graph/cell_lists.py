"""Neighbor lists of large galleries: of every item the nearest among those of the cells nearest to it.

Comparing all pairs takes hours from a million items on. So k-means divides the gallery into cells, and an
item is compared with every item of the few cells whose centers are nearest to it, exactly; the others are
missed. How much that is stands in docs/RESULTS.md (benchmarks/speed/ready_embeddings.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, ShortInts
from vicinal.indexer.graph.vector_index import import_faiss, nearest_rows
from vicinal.models.progress import OnProgress, no_progress

# Cells that an item visits.
_N_VISITED = 8
# Of a gallery of n items about 2 sqrt(n) cells, so that finding them and searching them takes equally long.
_CELLS_PER_ROOT = 2.0
_SAMPLE_PER_CELL = 64
_ITERATIONS = 8
_BLOCK = 16_384
# Most items of a cell and visits to it that are compared at once: some hundred megabytes.
_MOST_VISITS = 16_384


class Cells(NamedTuple):
    """Cells of n items."""

    visited: ShortInts  # (n, v) cells that each item visits, its own first
    members: ShortInts  # (n,) the items by their own cells
    bounds: Ints  # (c + 1,) where each cell begins there

    @classmethod
    def of(cls, visited: ShortInts, n_cells: int) -> Cells:
        """Cells with their members, of those that each item visits."""
        members = np.argsort(visited[:, 0], kind="stable").astype(np.int32)
        return cls(visited, members, np.searchsorted(visited[members, 0], np.arange(n_cells + 1)))


def cell_candidates(
    embeddings: FloatArray, n_candidates: int, *, on_progress: OnProgress = no_progress
) -> ShortInts:
    """(n, k) near items of (n, d) L2-normalized ones, itself too, in no order; -1 where fewer were found."""
    centers, rows = cell_centers(embeddings), range(len(embeddings))
    cells = Cells.of(nearest_cells(embeddings, centers, rows), len(centers))
    return candidates_in_cells(embeddings, cells, n_candidates, rows, on_progress=on_progress)


def candidates_in_cells(
    embeddings: FloatArray,
    cells: Cells,
    n_candidates: int,
    rows: range,
    *,
    on_progress: OnProgress = no_progress,
) -> ShortInts:
    """The same for some consecutive items, (m, k), of all that lie in the cells."""
    n, visited = len(rows), cells.visited[rows.start : rows.stop]
    found = np.full((n, n_candidates), -1, dtype=np.int32)
    scores = np.full((n, n_candidates), -np.inf, dtype=np.float32)
    visits = np.argsort(visited.reshape(-1), kind="stable")
    n_cells = len(cells.bounds) - 1
    bounds = np.searchsorted(visited.reshape(-1)[visits], np.arange(n_cells + 1))
    queries = embeddings[rows.start : rows.stop]
    for cell in range(n_cells):
        members = cells.members[cells.bounds[cell] : cells.bounds[cell + 1]]
        visitors = visits[bounds[cell] : bounds[cell + 1]] // visited.shape[1]
        for start in range(0, len(visitors) if len(members) else 0, _MOST_VISITS):
            some = visitors[start : start + _MOST_VISITS]
            _visit(queries, some, embeddings[members], members, found, scores)
        on_progress("neighbors", n * (cell + 1) // n_cells, n)
    return found


def cell_centers(embeddings: FloatArray) -> FloatArray:
    """(c, d) unit vectors: the centers that k-means finds of a sample drawn by a seed."""
    n, dim = embeddings.shape
    n_cells = min(n, 2 ** round(math.log2(_CELLS_PER_ROOT * math.sqrt(n))))
    rows = np.random.default_rng(0).choice(n, min(n, _SAMPLE_PER_CELL * n_cells), replace=False)
    means = import_faiss().Kmeans(
        dim,
        n_cells,
        niter=_ITERATIONS,
        seed=0,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=_SAMPLE_PER_CELL,
    )
    means.train(np.ascontiguousarray(embeddings[np.sort(rows)]))
    centers: FloatArray = means.centroids.reshape(n_cells, dim).copy()
    return centers


def nearest_cells(embeddings: FloatArray, centers: FloatArray, rows: range) -> ShortInts:
    """(m, v) cells that some consecutive items visit, their own first."""
    cells = np.empty((len(rows), min(_N_VISITED, len(centers))), np.int32)
    for start in range(0, len(rows), _BLOCK):
        block = embeddings[rows[start] : min(rows[start] + _BLOCK, rows.stop)]
        cells[start : start + _BLOCK] = nearest_rows(block, centers, cells.shape[1])[1]
    return cells


def _visit(
    queries: FloatArray,
    visitors: Ints,
    others: FloatArray,
    members: ShortInts,
    found: ShortInts,
    scores: FloatArray,
) -> None:
    """Compare visitors among the queries with the members of a cell, and keep the best found so far."""
    width = found.shape[1]
    nearest = nearest_rows(queries[visitors], others, min(width, len(members)))
    both = np.concatenate([scores[visitors], nearest[0]], axis=1)
    ids = np.concatenate([found[visitors], members[nearest[1]]], axis=1)
    best = np.argpartition(-both, width - 1, axis=1)[:, :width]
    scores[visitors] = np.take_along_axis(both, best, axis=1)
    found[visitors] = np.take_along_axis(ids, best, axis=1)
