"""What only a real GPU can show: it finds what the processor finds, and its memory comes back."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import faiss
import numpy as np
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.gpu import GpuIndex, IndexDevices, gpus
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.graph.vector_index import FaissIndex
from vicinal.models.similarity import normalize

_N_GPUS = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not _N_GPUS, reason="this Faiss has no GPU"),
]
N, DIM = 20_000, 64


@pytest.fixture(scope="module")
def embeddings() -> FloatArray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, DIM))
    return normalize(centers[rng.integers(0, 200, N)] + 0.5 * rng.normal(size=(N, DIM)))


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
@pytest.mark.parametrize(
    "spec", ["Flat", "auto", "IVF128,Flat", "IVF128,SQ8", "IVF128,SQfp16", "IVF128,PQ16"]
)
def test_it_finds_what_the_processor_finds(embeddings: FloatArray, spec: str, device: str) -> None:
    index = FaissIndex.build(embeddings, spec)
    devices = IndexDevices(device)
    placed = devices.placed(index, embeddings)
    assert isinstance(placed, GpuIndex), devices.problems
    queries = embeddings[:200]
    found = placed.search(queries, 40)
    # Equal ranks are not asked for: both round, and what is found is scored exactly afterwards.
    exact = np.argsort(-(queries @ embeddings.T), axis=1)[:, :10]
    assert missed(exact, found) <= missed(exact, index.search(queries, 40)) + 0.01
    assert devices.problems == []


def test_it_lists_the_neighbors_that_the_processor_lists(embeddings: FloatArray) -> None:
    found, expected = build_neighbor_graph(embeddings, device="cuda"), build_neighbor_graph(embeddings)
    np.testing.assert_array_equal(found.similarities, expected.similarities)


def missed(expected: Sequence[Sequence[int]] | np.ndarray, found: np.ndarray) -> float:
    """Share of the expected items that were not found."""
    lost = [len(set(a) - set(b)) for a, b in zip(np.asarray(expected).tolist(), found.tolist(), strict=True)]
    return sum(lost) / np.asarray(expected).size


def test_memory_comes_back() -> None:
    if not gpus():
        pytest.skip("the driver's tool is missing")
    rows = normalize(np.random.default_rng(0).standard_normal((500_000, 512), dtype=np.float32))
    index, devices = FaissIndex.build(rows[:1], "Flat"), IndexDevices("cuda")
    before = gpus()[0].free
    placed = devices.placed(index, rows)
    placed.search(rows[:1], 1)
    assert before - gpus()[0].free >= 0.9 * 2 * rows.size
    del placed
    gc.collect()
    assert before - gpus()[0].free < rows.size
