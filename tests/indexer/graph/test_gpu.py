"""Indexes on GPUs: which is chosen, what is sent there, and that nothing is lost where one fails."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph.gpu import GpuIndex, IndexDevices, gpu_bytes
from vicinal.indexer.graph.vector_index import FaissIndex
from vicinal.models.similarity import normalize

GIB = 2**30
N, DIM = 1000, 16


@pytest.fixture(scope="module")
def embeddings() -> FloatArray:
    return normalize(np.random.default_rng(0).normal(size=(N, DIM)))


@pytest.fixture(scope="module")
def index(embeddings: FloatArray) -> FaissIndex:
    return FaissIndex.build(embeddings, "Flat")


def moved(index: FaissIndex, embeddings: FloatArray, device: str = "auto") -> GpuIndex:
    placed = IndexDevices(device).placed(index, embeddings)
    assert isinstance(placed, GpuIndex)
    return placed


def test_without_a_gpu_everything_stays_on_the_processor(index: FaissIndex, embeddings: FloatArray) -> None:
    devices = IndexDevices("auto")
    assert devices.placed(index, embeddings) is index
    assert (devices.used, devices.problems) == (["cpu"], [])


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_faiss_cannot_use_is_refused_in_one_sentence(device: str) -> None:
    with pytest.raises(IndexDeviceError, match=rf"'{device}' was asked for, and this Faiss is built without"):
        IndexDevices(device)


@pytest.mark.parametrize(
    ("device", "free", "where", "made"),
    [
        ("auto", [GIB, 4 * GIB, 2 * GIB], "cuda:1", ["Flat in float16 on 1"]),
        ("cuda", [GIB, 4 * GIB], "cuda:0", ["Flat in float16 on 0"]),
        ("cuda:1", [GIB, 4 * GIB], "cuda:1", ["Flat in float16 on 1"]),
    ],
)
def test_the_gpu_is_the_one_that_the_device_names(
    index: FaissIndex, embeddings: FloatArray, device: str, free: list[int], where: str, made: list[str]
) -> None:
    with stand_in_gpus(free) as gpus:
        placed = moved(index, embeddings, device)
        assert (placed.device, gpus.made) == (where, made)
        assert np.array_equal(placed.search(embeddings[:9], 1)[:, 0], np.arange(9))


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_what_has_no_room_is_said_with_both_numbers_and_auto_stays_on_the_processor(
    index: FaissIndex, embeddings: FloatArray, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = r"the index needs 0\.0 GiB on a GPU, and cuda:0 has 0\.0 GiB free"
    with stand_in_gpus([2**27 + 100]):
        devices = IndexDevices(device)
        if device != "auto":
            with pytest.raises(IndexDeviceError, match=sentence):
                devices.placed(index, embeddings)
            return
        with caplog.at_level(logging.WARNING):
            assert devices.placed(index, embeddings) is index
    assert "stays on the processor: the index needs" in caplog.text
    assert (devices.used, len(devices.problems)) == (["cpu"], 1)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("Flat", 2 * 64 * 1000),
        ("IVF4,PQ8x4fs", 2 * 64 * 1000),
        ("IVF4,Flat", (256 + 8) * 1000 + 4 * 4 * 64),
        ("IVF4,SQ8", (64 + 8) * 1000 + 4 * 4 * 64),
        ("IVF4,SQfp16", (128 + 8) * 1000 + 4 * 4 * 64),
        ("IVF4,PQ16", (16 + 8) * 1000 + 4 * 4 * 64),
    ],
)
def test_memory_is_what_vectors_ids_and_lists_take(spec: str, expected: int) -> None:
    assert gpu_bytes(spec, 1000, 64) == expected


@pytest.mark.parametrize(
    ("spec", "device", "made"),
    [
        ("IVF4,Flat", "auto", ["lists on 0"]),
        ("IVF4,SQ8", "cuda:1", ["lists on 1"]),
        ("IVF4,PQ4", "auto", ["lists on 0"]),
        ("IVF4,PQ4x4fs", "auto", ["Flat in float16 on 0"]),
        ("SQ8", "auto", ["Flat in float16 on 0"]),
    ],
)
def test_lists_are_moved_as_they_are_and_all_else_is_compared_one_by_one(
    embeddings: FloatArray, spec: str, device: str, made: list[str]
) -> None:
    index = FaissIndex.build(embeddings, spec)
    with stand_in_gpus([GIB, GIB]) as gpus:
        found = moved(index, embeddings, device).search(embeddings[:50], 10)
    assert gpus.made == made
    similarities = embeddings[:50] @ embeddings.T
    expected = np.argsort(-similarities, axis=1)[:, :10]
    missed = sum(len(set(a) - set(b)) for a, b in zip(expected.tolist(), found.tolist(), strict=True))
    assert missed <= (10 if "Flat" in made[0] else 350)
    if made[0].startswith("lists"):
        assert np.array_equal(found, index.search(embeddings[:50], 10))


@pytest.mark.parametrize("which", ["among some", "many neighbors", "no query"])
def test_what_a_gpu_cannot_do_the_processor_does(
    index: FaissIndex, embeddings: FloatArray, which: str
) -> None:
    with stand_in_gpus([GIB]) as gpus:
        placed = moved(index, embeddings)
        queries = embeddings[: 0 if which == "no query" else 2]
        n, among = (2049, None) if which == "many neighbors" else (3, None)
        if which == "among some":
            among = np.arange(N) >= N - 5
        found = placed.search(queries, n, among)
    assert np.array_equal(found, index.search(queries, n, among))
    assert gpus.batches == []


def test_a_gpu_that_fails_ends_the_searches_under_way_and_the_processor_goes_on(
    index: FaissIndex, embeddings: FloatArray, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("CUDA error 719\n  unspecified launch failure")

    devices = None
    with stand_in_gpus([GIB]) as gpus:
        devices = IndexDevices("auto")
        placed = devices.placed(index, embeddings)
        assert (devices.used, devices.problems) == (["cuda:0"], [])
        gpus.fails = broken
        with pytest.raises(
            IndexDeviceError, match="cuda:0 failed: CUDA error 719 unspecified launch failure"
        ):
            placed.search(embeddings[:1], 3)
        gpus.fails = lambda: None
        assert np.array_equal(placed.search(embeddings[:5], 3), index.search(embeddings[:5], 3))
        assert gpus.batches == []
    assert (devices.used, devices.problems) == (["cpu"], [placed.failure])
    assert "searches go on on the processor" in caplog.text
