"""CAGRA, the graph that Faiss searches on a GPU where it is built with cuVS: it stands there for HNSW.

HNSW has no form on GPUs. The graph is made there of the embeddings when a version is opened; no file has it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.vector_index import FLAT_LIMIT, import_faiss

_HNSW = re.compile(r"HNSW\d+(?:,Flat)?")
# Neighbors of an item, and of those the ones that they are chosen from: Faiss' own.
_EDGES, _EDGES_BEFORE = 64, 128
# Fewer are sooner compared one by one.
_FEWEST = FLAT_LIMIT
# Of a query, where one block of threads answers it.
MOST_FROM_GRAPH = 512
# What a search keeps on its way is a multiple of this, and twice what is asked for where that may be.
_KEPT_UNIT, _FEWEST_KEPT = 32, 64


class CagraGraph:
    """A graph over embeddings.

    Args:
        resource: What Faiss works with on a GPU.
        embeddings: (n, d) float32, L2-normalized.
        number: Number of the GPU.

    Raises:
        RuntimeError: It cannot be made there.
    """

    def __init__(self, resource: Any, embeddings: FloatArray, number: int) -> None:
        faiss = import_faiss()
        config = faiss.GpuIndexCagraConfig()
        config.device, config.graph_degree, config.intermediate_graph_degree = number, _EDGES, _EDGES_BEFORE
        self._resource = resource
        self._index = faiss.GpuIndexCagra(resource, embeddings.shape[1], faiss.METRIC_INNER_PRODUCT, config)
        # Some versions of Faiss refer to what it was made of, and do not keep it.
        self._embeddings = np.ascontiguousarray(embeddings, dtype=np.float32)
        self._index.train(self._embeddings)

    def search(self, queries: FloatArray, n: int) -> Any:
        """(B, n) similarities and positions of the n nearest items, at most `MOST_FROM_GRAPH`.

        Args:
            queries: (B, d) float32, L2-normalized.
        """
        parameters = import_faiss().SearchParametersCagra()
        kept = -(-max(_FEWEST_KEPT, 2 * n) // _KEPT_UNIT) * _KEPT_UNIT
        parameters.itopk_size = min(MOST_FROM_GRAPH, kept)
        return self._index.search(queries, n, params=parameters)


def becomes_graph(spec: str, n_items: int) -> bool:
    """Whether an index on the processor gives way to a graph on a GPU."""
    is_there = hasattr(import_faiss(), "GpuIndexCagra")
    return is_there and n_items >= _FEWEST and _HNSW.fullmatch(spec) is not None


def graph_bytes(n_items: int, dim: int) -> int:
    """Memory that a graph takes while it is made, about, in bytes: vectors, their codes, and neighbors."""
    return (4 * dim + dim // 2 + 4 * (_EDGES + _EDGES_BEFORE)) * n_items
