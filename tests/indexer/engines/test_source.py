from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.indexer.engines.fakes import ExactEngine, engine_of
from tests.logs import said_by
from vicinal.indexer.engines import Engine, EngineSource
from vicinal.indexer.errors import DamagedGalleryError, EngineAwayError, EngineError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.storage.files import FileSeal

N, DIM = 300, 8


def unit(n: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def items(n: int = N) -> pa.Table:
    texts = [f"item {i}" for i in range(n)]
    labels = [None if i % 5 == 0 else "even" if i % 2 == 0 else "odd" for i in range(n)]
    return pa.table({"id": texts, "label": labels, "uri": texts, "metadata": ["{}"] * n})


def test_a_search_looks_at_as_much_as_finds_the_nearest() -> None:
    """Of an engine that sees a quarter of what it is told to look at, four times as much is asked."""
    found = {}
    for sees in (1.0, 0.25):
        with engine_of(ExactEngine(sees)) as asked:
            source = EngineSource.build(asked, "table", unit(N, 0), items())
            found[sees] = source.candidates.of_few
            assert source.search(unit(2, 1), 10).tolist() == nearest(unit(2, 1), 10)
            assert source.file.recall_of_few == 1.0
            assert source.file.recall_of_many == (1.0 if sees == 1.0 else 0.75)
    assert found == {1.0: 10, 0.25: 40}


def nearest(queries: np.ndarray, n: int, among: np.ndarray | None = None) -> list[list[int]]:
    products = queries @ unit(N, 0).T
    if among is not None:
        products[:, ~among] = -np.inf
    return np.argsort(-products, axis=1, kind="stable")[:, :n].tolist()


def test_what_is_not_among_the_items_asked_for_is_left_out_however_much_the_filter_finds() -> None:
    queries, filter = unit(3, 2), Filter.of("label = 'odd'")
    # All but the nearest hundred odd ones.
    odd = np.array([label == "odd" for label in items()["label"].to_pylist()])
    among = odd.copy()
    among[nearest(queries[:1], 100, odd)[0]] = False
    with engine_of(ExactEngine()) as asked:
        source = EngineSource.build(asked, "table", unit(N, 0), items())
        found = source.search(queries, 15, among, filter)
        all_of_them = source.search(queries, N, among, filter)
    assert found.tolist() == nearest(queries, 15, among)
    assert sorted(all_of_them[0][all_of_them[0] >= 0]) == np.flatnonzero(among).tolist()


def test_a_saved_source_names_its_table_and_no_address(tmp_path: Path) -> None:
    path = tmp_path / "initial.index"
    with engine_of(ExactEngine()) as asked:
        source = EngineSource.build(asked, "table", unit(N, 0), items())
        source.save(path)
        opened = EngineSource.open(path, source.candidates, FileSeal.of(path), asked)
        assert opened.search(unit(2, 1), 3).tolist() == source.search(unit(2, 1), 3).tolist()
        assert np.array_equal(opened.fetch(np.array([7, 3])), unit(N, 0)[[7, 3]])
        assert b"secret" not in path.read_bytes()
        seal = FileSeal.of(path)
        path.write_bytes(b"{}")
        with pytest.raises(DamagedGalleryError, match=r"initial\.index' is missing or damaged"):
            EngineSource.open(path, source.candidates, seal, asked)


def test_an_engine_that_fails_is_left_alone_until_one_question_finds_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, engine = [0.0], ExactEngine()
    with engine_of(engine, clock=lambda: now[0]) as asked, caplog.at_level(logging.WARNING):
        source = EngineSource.build(asked, "table", unit(N, 0), items())
        engine.failures = [EngineAwayError("it went"), EngineError("its password changed")]
        with pytest.raises(EngineAwayError, match="it went"):
            source.search(unit(1, 1), 3)
        n_asked = len(engine.asked)
        with pytest.raises(EngineAwayError, match="it went") as refused:
            source.search(unit(1, 1), 3)
        assert (asked.problem, len(engine.asked)) == ("it went", n_asked)
        assert refused.value.headers == {"Retry-After": "5"}
        now[0] = 5.0
        with pytest.raises(EngineError, match="its password changed"):
            source.search(unit(1, 1), 3)
        now[0] = 9.0
        with pytest.raises(EngineError, match="its password changed"):
            source.search(unit(1, 1), 3)
        now[0] = 10.0
        assert source.search(unit(1, 1), 3).shape == (1, 3)
        assert (asked.problem, asked.n_failures) == (None, 2)
    told = said_by(caplog, "vicinal.indexer.engines", logging.INFO)
    assert told == ["it went; trying again every 5 s", "Milvus answers again"]


def test_one_slow_search_keeps_no_other_from_an_engine_and_three_in_a_row_do() -> None:
    engine = ExactEngine()
    with engine_of(engine) as asked:
        source = EngineSource.build(asked, "table", unit(N, 0), items())
        slow = EngineAwayError("it is slow", is_slow=True)
        for n_slow, problem in ((2, None), (3, "it is slow")):
            engine.failures = [slow] * n_slow
            for _ in range(n_slow):
                with pytest.raises(EngineAwayError, match="it is slow"):
                    source.search(unit(1, 1), 3)
            assert asked.problem == problem
            if problem is None:
                source.search(unit(1, 1), 3)


def test_a_lost_table_keeps_no_other_gallery_from_its_engine() -> None:
    engine = ExactEngine()
    with engine_of(engine) as asked:
        source = EngineSource.build(asked, "table", unit(N, 0), items())
        engine.drop("table")
        with pytest.raises(EngineTableError, match="is gone"):
            source.search(unit(1, 1), 3)
        assert asked.problem is None


def test_an_engine_without_an_address_is_refused_with_what_would_help() -> None:
    with (
        pytest.raises(EngineError, match="no address: set VICINAL_MILVUS_URL"),
        Engine().asking(),
    ):
        pass
