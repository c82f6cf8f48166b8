"""Milvus: the real server of the package `milvus` (2.3.5, of January 2024) finds what was built into it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.milvus_server import MilvusServer
from tests.ports import free_port
from tests.waiting import wait_until
from vicinal.indexer.engines import Engine, EngineSource
from vicinal.indexer.engines.milvus import MilvusEngine
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.models.progress import no_progress

pytestmark = pytest.mark.slow
DIM = 16


def unit(n: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def items(n: int) -> pa.Table:
    ids = [f"item {i}" for i in range(n)]
    labels = [None if i % 5 == 0 else "even" if i % 2 == 0 else "odd" for i in range(n)]
    return pa.table(
        {"id": ids, "label": labels, "uri": ids, "metadata": [json.dumps({"n": i}) for i in range(n)]}
    )


@pytest.fixture(scope="module")
def engine(milvus_server: MilvusServer) -> Iterator[MilvusEngine]:
    engine = MilvusEngine(milvus_server.url)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def table(engine: MilvusEngine) -> Iterator[tuple[str, np.ndarray]]:
    vectors = unit(1500, 0)
    engine.build("alone_small_1", vectors, items(1500), no_progress)
    yield "alone_small_1", vectors
    engine.drop("alone_small_1")


def test_up_to_some_thousand_rows_are_compared_one_by_one(
    engine: MilvusEngine, table: tuple[str, np.ndarray]
) -> None:
    name, vectors = table
    queries = unit(70, 1)
    expected = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :10]
    assert np.array_equal(engine.search(name, queries, 10, 10), expected)
    everything = engine.search(name, queries[:1], 20_000, 20_000)[0]
    assert sorted(everything[:1500]) == list(range(1500))
    assert set(everything[1500:]) == {-1}


def test_a_filter_leaves_the_rows_that_fulfil_it(engine: MilvusEngine, table: tuple[str, np.ndarray]) -> None:
    name, vectors = table
    rows = [i for i in range(1500) if i % 5 and i % 2 and i < 700]
    order = sorted(rows, key=lambda i: -float(vectors[i] @ vectors[3]))
    found = engine.search(name, vectors[3:4], 8, 8, Filter.of("label = 'odd' AND metadata.n < 700"))
    assert found[0].tolist() == order[:8]
    none = engine.search(name, vectors[3:4], 8, 8, Filter.of("label = 'none'"))
    assert none[0].tolist() == [-1] * 8


def test_vectors_come_back_bit_for_bit(engine: MilvusEngine, table: tuple[str, np.ndarray]) -> None:
    name, vectors = table
    positions = np.array([7, 1499, 7, *range(1200)])
    assert engine.fetch(name, positions).tobytes() == vectors[positions].tobytes()
    with pytest.raises(EngineTableError, match="lacks some of its rows"):
        engine.fetch(name, np.array([1500]))


def test_a_graph_finds_the_nearest_as_far_as_it_was_measured(milvus_server: MilvusServer) -> None:
    """Above some thousand rows: .99 of the ten nearest of new queries, by what the build chose."""
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(100, DIM))
    drawn = centers[rng.integers(100, size=5200)] + 0.7 * rng.normal(size=(5200, DIM))
    drawn = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    vectors, queries = drawn[:5000], drawn[5000:]
    asked = Engine(milvus_server.url)
    source = EngineSource.build(asked, "alone_graph_1", vectors, items(5000))
    try:
        assert source.file.recall_of_few >= 0.995
        expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
        found = source.search(queries, 10)
        shared = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, expected, strict=True)])
        assert shared >= 0.99
        even = np.arange(5000) % 2 == 0
        within = source.search(queries[:5], 10, even, Filter.of("label LIKE 'ev%'"))
        assert even[within].all()
    finally:
        with asked.asking() as engine:
            engine.drop("alone_graph_1")
        asked.close()


def test_a_build_that_fails_leaves_no_collection(engine: MilvusEngine) -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        engine.build("alone_broken_1", unit(5, 4), items(5), stop)
    assert engine.names("alone_broken") == []


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("http://root:nope-secret@{at}", EngineError, "refuses the user, the password or the token of VICI"),
        ("http://{at}", EngineError, "refuses the user, the password or the token"),
        ("http://root:Milvus@{at}/nowhere-secret", EngineError, "has no database of the name"),
        ("http://root:secret@127.0.0.1:{free}", EngineAwayError, "Milvus does not answer"),
    ],
)
def test_an_address_that_does_not_do_is_an_error_that_does_not_tell_it(
    milvus_server: MilvusServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    address: str,
    kind: type[EngineError],
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    if kind is EngineAwayError:
        # Its client waits for as long as it may.
        monkeypatch.setattr("vicinal.indexer.engines.milvus_connection.CONNECT_SECONDS", 2.0)
    url = address.format(at=milvus_server.address, free=free_port())
    with pytest.raises(EngineError, match=words) as caught:
        MilvusEngine(url).names("vicinal_")
    assert type(caught.value) is kind
    told = str(caught.value) + caplog.text + capfd.readouterr().out
    assert "secret" not in told
    assert milvus_server.address not in told


def test_a_server_that_was_killed_is_left_alone_and_asked_again_once_it_is_back(
    milvus_server: MilvusServer, table: tuple[str, np.ndarray]
) -> None:
    """The circuit opens with the first search that is cut off, and closes by the first one that is not."""
    name, vectors = table
    asked = Engine(milvus_server.url, retry_seconds=0.2)

    def search() -> np.ndarray:
        with asked.asking() as engine:
            return engine.search(name, vectors[:1], 3, 3)

    before = search()
    milvus_server.kill()
    with pytest.raises(EngineAwayError, match="Milvus does not answer"):
        search()
    assert asked.problem == "Milvus does not answer"
    milvus_server.start()

    def is_back() -> bool:
        try:
            return np.array_equal(search(), before)
        except EngineAwayError:
            return False

    wait_until(is_back, every=0.1)
    assert asked.problem is None
    asked.close()
