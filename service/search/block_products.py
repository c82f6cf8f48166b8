"""Block products: similarities of queries with blocks of items, on the processor or on a GPU of Faiss.

A calibration looks at every pair of a query and an item. Pairs that a search would fetch have the scores of
the search; the others need their products alone, which a GPU makes. They are sums in float32 there, in
float64 on the processor, and differ by some 1e-7, which is what the normalized embeddings are rounded by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph.gpu import GpuComparison, left_to_processor

# Of (B, d) queries and (w, d) items, float32 and L2-normalized: (B, w) cosine similarities in [-1, 1].
BlockProducts: TypeAlias = Callable[[FloatArray, FloatArray], Floats]

# Two cores make the products of fewer pairs in about a second, before a GPU is at hand.
_FEWEST_PAIRS = 2**26


def exact_products(queries: FloatArray, items: FloatArray) -> Floats:
    """(B, w) cosine similarities of (B, d) and (w, d) unit rows, summed in float64 on the processor."""
    products = queries.astype(np.float64) @ items.astype(np.float64).T
    return np.clip(products, -1.0, 1.0, out=products)


def block_products(device: str, n_pairs: int) -> BlockProducts:
    """The function that makes the products of many pairs, block by block."""
    gpu: GpuComparison | None = None

    def lose(error: IndexDeviceError) -> None:
        nonlocal gpu
        left_to_processor(device, error, "pairs are compared")
        gpu = None

    def products(queries: FloatArray, items: FloatArray) -> Floats:
        if gpu is not None:
            try:
                return np.clip(gpu.products(queries, items).astype(np.float64), -1.0, 1.0)
            except IndexDeviceError as error:
                lose(error)
        return exact_products(queries, items)

    if n_pairs >= _FEWEST_PAIRS:
        try:
            gpu = GpuComparison.of(device)
        except IndexDeviceError as error:
            lose(error)
    return exact_products if gpu is None else products
