"""Neighbor lists by GPUs that are none: what is sent where, and that the graph is the processor's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.logs import said_by
from tests.stand_in_gpus import StandInGpus, stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph import gpu, neighbor_graph
from vicinal.indexer.graph.gpu import WORK_BYTES
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.models.similarity import normalize

N, DIM, K = 1500, 16, 12


@pytest.fixture(scope="module")
def embeddings() -> FloatArray:
    """Every fifth item stands twice."""
    rows = np.random.default_rng(0).normal(size=(N, DIM))
    rows[::5] = rows[1::5]
    return normalize(rows)


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_FEWEST", 400)
    monkeypatch.setattr(gpu, "_QUERIES", 512)


def built(embeddings: FloatArray, device: str = "auto") -> NeighborGraph:
    return build_neighbor_graph(embeddings, K, device=device)


def assert_is_of_processor(graph: NeighborGraph, embeddings: FloatArray) -> None:
    expected = build_neighbor_graph(embeddings, K)
    assert np.array_equal(graph.similarities, expected.similarities)
    assert np.array_equal(graph.ids, expected.ids)


def test_all_pairs_are_compared_on_the_gpu_and_scored_on_the_processor(embeddings: FloatArray) -> None:
    with stand_in_gpus([2**30, 2**31]) as gpus:
        graph = built(embeddings)
    assert_is_of_processor(graph, embeddings)
    assert gpus.compared == [(1, 512, N), (1, 512, N), (1, 476, N)]


def fail_with(gpus: StandInGpus, reason: str) -> None:
    def fails() -> None:
        raise RuntimeError(reason)

    gpus.fails = fails


def test_where_it_fails_auto_goes_on_on_the_processor(
    embeddings: FloatArray, caplog: pytest.LogCaptureFixture
) -> None:
    with stand_in_gpus([2**30]) as gpus:
        fail_with(gpus, "CUDA error 719\nunspecified launch failure")
        assert_is_of_processor(built(embeddings), embeddings)
        with pytest.raises(IndexDeviceError, match=r"^cuda:0 failed: CUDA error 719 unspecified launch fail"):
            built(embeddings, "cuda:0")
    assert len(said_by(caplog, gpu.__name__)) == 1


def test_what_has_no_room_is_said_before_anything_is_sent(
    embeddings: FloatArray, caplog: pytest.LogCaptureFixture
) -> None:
    with stand_in_gpus([WORK_BYTES + 10_000]) as gpus:
        assert_is_of_processor(built(embeddings), embeddings)
        with pytest.raises(IndexDeviceError, match=r"^cuda:0 has 0\.1 GiB free, too little to compare 1,500"):
            built(embeddings, "cuda")
    assert gpus.compared == []
    assert len(said_by(caplog, gpu.__name__)) == 1


def test_galleries_that_the_processor_takes_cells_for_are_exact_on_a_gpu(
    embeddings: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = build_neighbor_graph(embeddings, K)
    monkeypatch.setattr(neighbor_graph, "EXACT_LIMIT", 1000)
    with stand_in_gpus([2**30]):
        graph = built(embeddings)
    assert np.array_equal(graph.ids, expected.ids)
    # Negative control: cells miss some.
    assert not np.array_equal(build_neighbor_graph(embeddings, K).ids, expected.ids)
