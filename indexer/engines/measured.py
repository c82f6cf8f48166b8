"""Measuring of how much of an engine's table a search looks at, with new queries when a version is built."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.errors import EngineAwayError
from vicinal.indexer.graph.vector_index import RECALL, nearest_rows, shared_out
from vicinal.models.similarity import normalize

# Search of an engine's table: (B, n) positions of the items nearest to (B, d) `queries`, `n` and `looked_at`.
Find: TypeAlias = Callable[..., Ints]

# Queries that are sent together.
_TOGETHER = 16
# Steps in which a search is told to look at more, until it finds enough; further ones grow by as much.
_LOOKED_AT = (16, 24, 40, 64, 100, 160, 250, 400, 640, 1000, 1600, 2500, 4000)
# Products that differ by less are of items that are equally near, as copies are.
_EQUAL = 1e-6
# Nearest that are looked for when it is measured how much is looked at, and of how many queries.
_FEW, _MANY, _MEASURED_BY = 10, 100, 512
# A table that was just built is slow at first, and to build it took far longer than this.
_PATIENT_SECONDS, _BETWEEN_TRIES = 300.0, 1.0


def in_blocks(find: Callable[[FloatArray], Ints], queries: FloatArray, n: int) -> Ints:
    """(B, n) positions that are found of some queries at a time."""
    blocks = [queries[start : start + _TOGETHER] for start in range(0, len(queries), _TOGETHER)]
    found = shared_out(find, blocks)
    return np.concatenate(found) if found else np.empty((0, n), np.int64)


def measured_candidates(
    find: Find, most: int, embeddings: FloatArray
) -> tuple[tuple[int, int], tuple[float, float]]:
    """Items that a search for ten and for a hundred looks at, and the share of these that it finds."""
    if len(embeddings) < 2:
        return (1, 1), (1.0, 1.0)
    queries = _like_new(embeddings)
    nearest = nearest_rows(queries, embeddings, min(len(embeddings), _MANY))[1]
    few, many = (_enough(find, most, embeddings, queries, nearest[:, :n]) for n in (_FEW, _MANY))
    return (few[0], max(few[0], many[0])), (few[1], many[1])


def _like_new(embeddings: FloatArray) -> FloatArray:
    """(q, d) queries that lie as new ones would: items moved by the way from one of their
    neighbors to another.

    A graph finds its own items more easily than what it has not seen: looking at 24 of 20,000 items without
    groups, .97 of the ten nearest of its items, and .49 of those of new queries.
    """
    rng = np.random.default_rng(0)
    rows = rng.choice(len(embeddings), min(len(embeddings), _MEASURED_BY), replace=False)
    items = np.ascontiguousarray(embeddings[rows])
    near = nearest_rows(items, embeddings, min(len(embeddings), _FEW + 1))[1]
    places = rng.permuted(np.tile(np.arange(near.shape[1]), (len(near), 1)), axis=1)[:, :2]
    one, other = np.take_along_axis(near, places, axis=1).T
    return normalize(items + embeddings[one] - embeddings[other]).astype(np.float32)


def _enough(
    find: Find, most: int, embeddings: FloatArray, queries: FloatArray, nearest: Ints
) -> tuple[int, float]:
    """The least that a search looks at to find most of the nearest, and the share of them that it finds."""
    n_items, wanted = len(embeddings), nearest.shape[1]
    most = min(n_items, most)
    least = (np.take(embeddings, nearest[:, -1], axis=0) * queries).sum(axis=1) - _EQUAL
    for looked_at in (min(wanted, most), *_steps(wanted, most), most):
        found = in_blocks(partial(_patient, partial(find, n=wanted, looked_at=looked_at)), queries, wanted)
        products = np.where(found >= 0, np.einsum("qd,qnd->qn", queries, embeddings[found]), -np.inf)
        recall = float((products >= least[:, None]).mean())
        if recall >= RECALL:
            break
    return looked_at, round(recall, 4)


def _patient(find: Callable[[FloatArray], Ints], queries: FloatArray) -> Ints:
    """Positions that are found, after more tries where the engine takes too long."""
    over = time.monotonic() + _PATIENT_SECONDS
    while True:
        try:
            return find(queries)
        except EngineAwayError as error:
            if not error.is_slow or time.monotonic() > over:
                raise
        time.sleep(_BETWEEN_TRIES)


def _steps(least: int, most: int) -> Iterator[int]:
    """Numbers of items to look at, from more than the least up to less than the most."""
    for step in _LOOKED_AT:
        if least < step < most:
            yield step
    step = _LOOKED_AT[-1]
    while (step := round(1.6 * step)) < most:
        yield step
