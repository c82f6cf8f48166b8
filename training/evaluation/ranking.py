"""Ranks of the items that matter to a query: the same in every chunk, without an n x m matrix.

A matrix product through BLAS rounds the same pair differently by the shape of the matrices, by the
processor and by the number of threads; equal items would then be ranked by the last bit instead of by
gallery position. So the coordinates are rounded to multiples of 2^-26, about what float32 resolves of
a unit vector anyway. Every product of two of them, and by Cauchy-Schwarz every partial sum, is then
a multiple of 2^-52 below 2 in magnitude: float64 holds it exactly, and no order of summation can change
it. From the unit embeddings on, every machine ranks alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.models.errors import EvaluationError

_COORDINATE_BITS = 26
# A sorting key holds a similarity in steps of 2^-40 above the gallery position, in one int64.
_POSITION_BITS = 22
_DROPPED_BITS = 2 * _COORDINATE_BITS - 40
_LAST = np.iinfo(np.int64).max
# Entries of a block of similarities: 32 MiB in float64.
_BLOCK = 2**22
# Up to so many mates it is faster to count what ranks before each than to sort the whole row.
_FEW_MATES = 32


def item_ranks(
    queries: FloatArray,
    gallery: FloatArray,
    wanted: Iterable[Ints],
    exclude: Sequence[npt.ArrayLike] | None = None,
) -> Iterator[Ints]:
    """Rank the gallery for each query by falling cosine similarity, ties by gallery position.

    Gives for each query the ranks of its `wanted` gallery positions, each named once, rising, from 0.
    Positions of `exclude` are not there for the query, wanted or not. Queries (n, d) and gallery (m, d), at
    most 2^22 items, are float32, L2-normalized.
    """
    if len(gallery) > 2**_POSITION_BITS:
        raise EvaluationError(
            f"the gallery has {len(gallery):,} items, exact ranking takes at most {2**_POSITION_BITS:,}: "
            "evaluate on a sample"
        )
    for row, (keys, items) in enumerate(zip(_rows_of_keys(queries, gallery), wanted, strict=True)):
        if exclude is not None:
            left_out = np.asarray(exclude[row], dtype=np.int64)
            keys[left_out] = _LAST
            items = np.setdiff1d(items, left_out, assume_unique=True)
        yield _count_before(keys, np.sort(keys[items]))


def mate_positions(query_labels: Sequence[object], gallery_labels: Sequence[object]) -> Iterator[Ints]:
    """Gallery positions with the label of each query, rising; none where the gallery lacks it."""
    names, classes, sizes = np.unique(np.asarray(gallery_labels), return_inverse=True, return_counts=True)
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes))[:-1]
    members = dict(zip(names.tolist(), by_class, strict=True))
    none = np.empty(0, np.int64)
    for label in query_labels:
        yield members.get(label, none)


def top_similarities(
    queries: FloatArray, gallery: FloatArray, exclude: Sequence[npt.ArrayLike] | None = None
) -> Floats:
    """(n,) cosine similarity of each query to its most similar gallery item, block by block.

    Queries (n, d) and gallery (m, d) are float32, L2-normalized; -inf for a query to which no item is left.
    """
    tops = np.full(len(queries), -np.inf)
    start = 0
    for products in _products(queries, gallery):
        stop = start + len(products)
        if exclude is not None:
            for products_of_query, left_out in zip(products, exclude[start:stop], strict=True):
                products_of_query[np.asarray(left_out, dtype=np.int64)] = -np.inf
        tops[start:stop] = products.max(axis=1, initial=-np.inf)
        start = stop
    return np.ldexp(tops, -2 * _COORDINATE_BITS)


def _rows_of_keys(queries: FloatArray, gallery: FloatArray) -> Iterator[Ints]:
    """Keys of the items for each query: a smaller one ranks earlier, and no two are equal."""
    positions = np.arange(len(gallery))
    for products in _products(queries, gallery):
        keys = products.astype(np.int64)
        np.negative(keys, out=keys)
        keys >>= _DROPPED_BITS
        keys <<= _POSITION_BITS
        keys |= positions
        yield from keys


def _products(queries: FloatArray, gallery: FloatArray) -> Iterator[Floats]:
    """(rows, m) exact dot products in units of 2^-52, some rows at a time."""
    items = _as_fixed_point(gallery).T
    rows = max(1, _BLOCK // max(1, len(gallery)))
    for start in range(0, len(queries), rows):
        yield _as_fixed_point(queries[start : start + rows]) @ items


def _as_fixed_point(unit: FloatArray) -> Floats:
    return np.rint(np.ldexp(unit.astype(np.float64), _COORDINATE_BITS))


def _count_before(keys: Ints, wanted: Ints) -> Ints:
    if len(wanted) > _FEW_MATES:
        return np.searchsorted(np.sort(keys), wanted)
    return np.array([np.count_nonzero(keys < key) for key in wanted], dtype=np.int64)
