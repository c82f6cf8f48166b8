"""Block products: similarities of queries with blocks of items, on the processor or on a GPU of Faiss.

A calibration looks at every pair of a query and an item. Pairs that a search would fetch have the scores of
the search; the others need their products alone, which a GPU makes. They are sums in float32 there, in
float64 on the processor, and differ by some 1e-7, which is what the normalized embeddings are rounded by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph.gpu_index import (
    WORK_BYTES,
    faiss_gpus,
    faiss_resource,
    in_one_line,
    roomiest_gpu,
)
from vicinal.indexer.graph.vector_index import import_faiss

# Of (B, d) queries and (w, d) items, float32 and L2-normalized: (B, w) cosine similarities in [-1, 1].
BlockProducts: TypeAlias = Callable[[FloatArray, FloatArray], Floats]

logger = logging.getLogger(__name__)

# Two cores make the products of fewer pairs in about a second, before a GPU is at hand.
_FEWEST_PAIRS = 2**26


def exact_products(queries: FloatArray, items: FloatArray) -> Floats:
    """Cosine similarities in [-1, 1], summed in float64 on the processor.

    Args:
        queries: (B, d) float32, L2-normalized.
        items: (w, d) float32, L2-normalized.

    Returns:
        (B, w) float64.
    """
    products = queries.astype(np.float64) @ items.astype(np.float64).T
    return np.clip(products, -1.0, 1.0, out=products)


def block_products(device: str, n_pairs: int) -> BlockProducts:
    """What makes the products of many pairs, block by block."""
    numbers = faiss_gpus(device) if n_pairs >= _FEWEST_PAIRS else ()
    return _GpuProducts(device, numbers) if numbers else exact_products


class _GpuProducts:
    """Products on a GPU, see `block_products`."""

    def __init__(self, device: str, numbers: Sequence[int]) -> None:
        self._device = device
        self._is_lost = False
        self._number: int = numbers[0]
        self._free: int | None = None
        try:
            self._number, self._free = roomiest_gpu(numbers)
            self._resource = faiss_resource()
        except IndexDeviceError as error:
            self._lose(error)

    def __call__(self, queries: FloatArray, items: FloatArray) -> Floats:
        """See `BlockProducts`."""
        if not self._is_lost:
            try:
                return self._on_gpu(queries, items)
            except IndexDeviceError as error:
                self._lose(error)
        return exact_products(queries, items)

    def _lose(self, error: IndexDeviceError) -> None:
        if self._device != "auto":
            raise error
        self._is_lost = True
        logger.warning("pairs are compared on the processor: %s", error)

    def _on_gpu(self, queries: FloatArray, items: FloatArray) -> Floats:
        # What is sent and what comes back.
        n_bytes = WORK_BYTES + queries.nbytes + items.nbytes + 4 * len(queries) * len(items)
        if self._free is not None and n_bytes > self._free:
            raise IndexDeviceError(
                f"cuda:{self._number} has {self._free // 2**20:,} MiB free, a block of pairs takes "
                f"{-(-n_bytes // 2**20):,}"
            )
        faiss = import_faiss()
        try:
            products = faiss.pairwise_distance_gpu(
                self._resource,
                np.ascontiguousarray(queries),
                np.ascontiguousarray(items),
                metric=faiss.METRIC_INNER_PRODUCT,
                device=self._number,
            ).astype(np.float64)
        except (MemoryError, RuntimeError) as error:
            raise IndexDeviceError(f"cuda:{self._number} failed: {in_one_line(error)}") from error
        return np.clip(products, -1.0, 1.0, out=products)
