"""Neighbor lists of galleries on a GPU: every item is compared with all others there, block by block.

What is found is scored exactly on the processor, as everywhere, so that lists are those of the processor up
to ties. Above a size that takes too long it is left to the processor, which compares some items alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, ShortInts
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph.gpu_index import (
    MOST_NEIGHBORS,
    WORK_BYTES,
    faiss_gpus,
    faiss_resource,
    in_one_line,
    roomiest_gpu,
)
from vicinal.indexer.graph.vector_index import import_faiss
from vicinal.models.progress import OnProgress, no_progress

logger = logging.getLogger(__name__)


# Fewer are compared on a processor before a GPU is at hand.
_FEWEST = 10_000
# All pairs of n items take 2 n^2 d operations, and finding the nearest in the products about as long as 128
# dimensions more. A small GPU of a server is taken to do 5e12 a second: a million items of 512 dimensions in
# four minutes, 1.5 million in ten. Two cores take four minutes for that million cell by cell, and miss a
# hundredth (docs/RESULTS.md). The GPU's part is an estimate: none has run this yet.
_OPERATIONS_PER_SECOND = 5e12
_SELECTION_DIMS = 128
_MOST_SECONDS = 600.0
# Items are sent to the GPU with every block of queries; with so many, that takes less time than comparing.
_QUERIES = 65_536
# Of the memory that is free: what is sent is there beside copies and tiles of Faiss.
_SHARE = 0.5
_OUT_OF_MEMORY = ("out of memory", "alloc fail")


@dataclass(frozen=True)
class _Block:
    """What is on a GPU at once.

    Attributes:
        n_queries: Items whose neighbors are looked for.
        n_items: Items that they are compared with.
    """

    n_queries: int
    n_items: int

    def halved(self, least: int) -> _Block:
        """Half of both, at least so many items."""
        return _Block(max(1, self.n_queries // 2), max(least, self.n_items // 2))


def gpu_candidates(
    embeddings: FloatArray, n_candidates: int, device: str, *, on_progress: OnProgress = no_progress
) -> ShortInts | None:
    """Near items of every item, itself among them, up to the rounding of float32 products.

    Args:
        embeddings: (n, d) float32, L2-normalized; may be a memory map.

    Returns:
        (n, k) positions, nearest first. None where the processor has to find them: it is asked for or faster,
        or `auto` finds no GPU that can.
    """
    n, dim = embeddings.shape
    seconds = 2.0 * n * n * (dim + _SELECTION_DIMS) / _OPERATIONS_PER_SECOND
    if n < _FEWEST or n_candidates > MOST_NEIGHBORS or seconds > _MOST_SECONDS:
        return None
    numbers = faiss_gpus(device)
    if not numbers:
        return None
    try:
        number, free = roomiest_gpu(numbers)
        # Where nobody knows what is free, Faiss will tell.
        block = _first_block(free, embeddings, n_candidates, number)
        return _found(embeddings, n_candidates, number, block, on_progress)
    except IndexDeviceError as error:
        if device != "auto":
            raise
        logger.warning("neighbors are found on the processor: %s", error)
        return None


def _first_block(free: int | None, embeddings: FloatArray, n_candidates: int, number: int) -> _Block:
    """The largest that has room."""
    n, dim = embeddings.shape
    # Positions of 8 bytes and products of 4.
    per_query, per_item = 4 * dim + 12 * n_candidates, 4 * dim
    if free is None:
        return _Block(min(_QUERIES, n), n)
    room = int(_SHARE * (free - WORK_BYTES))
    n_queries = min(_QUERIES, n, room // 4 // per_query)
    n_items = min(n, (room - n_queries * per_query) // per_item)
    # Fewer would be sent more often than they are worth.
    if n_queries < 1 or n_items < min(n, _FEWEST):
        raise IndexDeviceError(
            f"cuda:{number} has {free / 2**30:.1f} GiB free, too little to compare {n:,} items"
        )
    return _Block(n_queries, n_items)


def _found(
    embeddings: FloatArray, n_candidates: int, number: int, block: _Block, on_progress: OnProgress
) -> ShortInts:
    """See `gpu_candidates`. Where a block turns out too large, half of it is taken, once."""
    n = len(embeddings)
    found, start, is_first = np.empty((n, n_candidates), np.int32), 0, True
    resource = faiss_resource()
    while start < n:
        rows = slice(start, start + block.n_queries)
        try:
            found[rows] = _nearest(
                resource, embeddings[rows], embeddings, n_candidates, number, block.n_items
            )
        except (MemoryError, RuntimeError) as error:
            reason = in_one_line(error)
            if not (is_first and any(one in reason.lower() for one in _OUT_OF_MEMORY)):
                raise IndexDeviceError(f"cuda:{number} failed: {reason}") from error
            is_first, block = False, block.halved(n_candidates)
            logger.warning("cuda:%d has too little memory for a block of items: half from now on", number)
            continue
        start += block.n_queries
        on_progress("neighbors", min(start, n), n)
    return found


def _nearest(
    resource: Any, queries: FloatArray, items: FloatArray, n_candidates: int, number: int, most: int
) -> Ints:
    faiss = import_faiss()
    # Parts of about one size: Faiss takes a last one with fewer items than are asked for, and makes them up.
    n_parts = -(-len(items) // most)
    n_bytes = items.itemsize * items.shape[1] * -(-len(items) // n_parts)
    _, found = faiss.knn_gpu(
        resource,
        np.ascontiguousarray(queries),
        items,
        n_candidates,
        metric=faiss.METRIC_INNER_PRODUCT,
        device=number,
        vectorsMemoryLimit=n_bytes,
    )
    return found
