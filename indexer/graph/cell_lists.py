"""Neighbor lists of large galleries: of every item the nearest among those of the cells nearest to it.

Comparing all pairs takes hours from a million items on. So k-means divides the gallery into cells, and an
item is compared with every item of the few cells whose centers are nearest to it, exactly; the others are
missed. How much that is stands in docs/RESULTS.md (benchmarks/speed/ready_embeddings.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from vicinal.calibration.arrays import AnyInts, FloatArray, Ints, ShortInts
from vicinal.indexer.cluster import Cluster
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
# Items whose vectors go to a machine of a cluster at a time, if one cell has not more.
_APART = 65_536


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

    def pairs(self) -> Iterator[tuple[AnyInts, AnyInts]]:
        """Members and visitors of each cell."""
        visits = np.argsort(self.visited.reshape(-1), kind="stable")
        bounds = np.searchsorted(self.visited.reshape(-1)[visits], np.arange(len(self.bounds)))
        for cell in range(len(self.bounds) - 1):
            visitors = visits[bounds[cell] : bounds[cell + 1]] // self.visited.shape[1]
            yield self.members[self.bounds[cell] : self.bounds[cell + 1]], visitors


class CellPart(NamedTuple):
    """Some cells, with the vectors of their members and of who visits them, and of nobody else."""

    rows: Ints  # (r,) their items, ascending
    vectors: FloatArray  # (r, d)
    pairs: Sequence[tuple[AnyInts, AnyInts]]  # Of each cell: members and visitors, as places among the rows


def cell_candidates(
    embeddings: FloatArray,
    n_candidates: int,
    *,
    cluster: Cluster | None = None,
    on_progress: OnProgress = no_progress,
) -> ShortInts:
    """(n, k) near items of (n, d) L2-normalized ones, itself too, in no order; -1 where fewer were found. No
    machine of a cluster gets all vectors: each compares those of some cells.
    """
    centers, n = cell_centers(embeddings), len(embeddings)
    found = np.full((n, n_candidates), -1, dtype=np.int32)
    scores = np.full((n, n_candidates), -np.inf, dtype=np.float32)
    if cluster is None:
        cells = Cells.of(nearest_cells(embeddings, centers), len(centers))
        for cell, (members, visitors) in enumerate(cells.pairs()):
            for some, ids, near in _visits(members, visitors, embeddings, n_candidates):
                _keep_best(found, scores, some, members[ids], near)
            on_progress("neighbors", n * (cell + 1) // len(centers), n)
        return found
    visited = np.empty((n, min(_N_VISITED, len(centers))), np.int32)
    blocks = ((start, np.asarray(embeddings[start : start + _APART])) for start in range(0, n, _APART))
    for start, some in cluster.map(_cells_of_block, blocks, cluster.share(centers)):
        visited[start : start + len(some)] = some
    n_done, parts = 0, _parts(embeddings, Cells.of(visited, len(centers)))
    for n_cells, rows, ids, near in cluster.map(_candidates_of_part, parts, n_candidates):
        _keep_best(found, scores, rows, ids, near)
        n_done += n_cells
        on_progress("neighbors", n * n_done // len(centers), n)
    return found


def _parts(embeddings: FloatArray, cells: Cells) -> Iterator[CellPart]:
    """All cells, as many together as have so many members and visitors."""
    pairs: list[tuple[AnyInts, AnyInts]] = []
    for last, pair in enumerate(cells.pairs(), 1):
        pairs.append(pair)
        if last < len(cells.bounds) - 1 and sum(len(one) for both in pairs for one in both) < _APART:
            continue
        rows = np.unique(np.concatenate([one for both in pairs for one in both]))
        places = [(np.searchsorted(rows, one), np.searchsorted(rows, two)) for one, two in pairs]
        yield CellPart(rows, np.asarray(embeddings[rows]), places)
        pairs = []


def _cells_of_block(centers: FloatArray, block: tuple[int, FloatArray]) -> tuple[int, ShortInts]:
    return block[0], nearest_cells(block[1], centers)


def _candidates_of_part(n_candidates: int, part: CellPart) -> tuple[int, Ints, ShortInts, FloatArray]:
    """Number of cells, the items that visit them, and the candidates that these have there."""
    found = np.full((len(part.rows), n_candidates), -1, dtype=np.int32)
    scores = np.full((len(part.rows), n_candidates), -np.inf, dtype=np.float32)
    for members, visitors in part.pairs:
        for some, ids, near in _visits(members, visitors, part.vectors, n_candidates):
            _keep_best(found, scores, some, part.rows[members[ids]], near)
    is_visitor = found[:, 0] >= 0
    return len(part.pairs), part.rows[is_visitor], found[is_visitor], scores[is_visitor]


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


def nearest_cells(embeddings: FloatArray, centers: FloatArray) -> ShortInts:
    """(n, v) cells that items visit, their own first."""
    cells = np.empty((len(embeddings), min(_N_VISITED, len(centers))), np.int32)
    for start in range(0, len(embeddings), _BLOCK):
        block = embeddings[start : start + _BLOCK]
        cells[start : start + _BLOCK] = nearest_rows(block, centers, cells.shape[1])[1]
    return cells


def _visits(
    members: AnyInts, visitors: AnyInts, vectors: FloatArray, n: int
) -> Iterator[tuple[AnyInts, AnyInts, FloatArray]]:
    """Some visitors of a cell, (b, w) places of the members nearest to them, and their similarities."""
    others = vectors[members]
    for start in range(0, len(visitors) if len(members) else 0, _MOST_VISITS):
        some = visitors[start : start + _MOST_VISITS]
        near, ids = nearest_rows(vectors[some], others, min(n, len(members)))
        yield some, ids, near


def _keep_best(found: ShortInts, scores: FloatArray, rows: AnyInts, ids: AnyInts, near: FloatArray) -> None:
    """Keep the best that was found so far for some rows, with what is found now."""
    width = found.shape[1]
    both = np.concatenate([scores[rows], near], axis=1)
    together = np.concatenate([found[rows], ids], axis=1)
    best = np.argpartition(-both, width - 1, axis=1)[:, :width]
    scores[rows] = np.take_along_axis(both, best, axis=1)
    found[rows] = np.take_along_axis(together, best, axis=1)
