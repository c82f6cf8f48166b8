"""Collections of a team, searched as they are by the real server of the package `milvus` (2.3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.milvus_collections import make_collection, milvus_client
from tests.milvus_server import MilvusServer
from tests.waiting import wait_until
from vicinal.indexer.engines.milvus import MilvusEngine
from vicinal.indexer.engines.milvus_team import MilvusReader
from vicinal.indexer.errors import EngineTableError
from vicinal.indexer.sources.team_table import TableMark, TeamTable
from vicinal.indexer.sources.values import UNNAMED

pytestmark = pytest.mark.slow
DIM, N = 16, 2500
METRICS = [
    ("HNSW", "COSINE", {"M": 16, "efConstruction": 100}),
    ("IVF_FLAT", "L2", {"nlist": 16}),
    ("FLAT", "IP", {}),
]


def drawn(n: int, seed: int) -> np.ndarray:
    """Vectors of all lengths."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, DIM)) * rng.uniform(0.5, 2, size=(n, 1))).astype(np.float32)


VECTORS, QUERIES = drawn(N, 0), drawn(5, 1)


@pytest.fixture(scope="module")
def client(milvus_server: MilvusServer) -> Iterator[Any]:
    with milvus_client(milvus_server.url) as client:
        yield client


@pytest.fixture(scope="module")
def engine(milvus_server: MilvusServer) -> Iterator[MilvusEngine]:
    engine = MilvusEngine(milvus_server.url)
    yield engine
    engine.close()


@pytest.fixture
def small(client: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A collection of a name of its own: what Milvus said of one is known for a minute."""
    name = request.function.__name__
    make_collection(client, name, [row(n) for n in range(20)], dim=DIM, key="VARCHAR", sku="VARCHAR")
    yield name
    client.drop_collection(name)


def row(n: int, **changed: Any) -> dict[str, Any]:
    return {"code": f'"{n:04}', "vector": VECTORS[n], "sku": f"sku {n % 3}", "shade": n} | changed


def table(name: str, **columns: str) -> TeamTable:
    return TeamTable(
        engine="milvus", name=name, columns={"id": "code", "embedding": "vector", "label": "sku"} | columns
    )


@pytest.mark.parametrize("index", METRICS, ids=[one[0] for one in METRICS])
def test_rows_come_by_the_metric_that_the_collection_has(
    client: Any, engine: MilvusEngine, index: tuple[str, str, dict[str, int]]
) -> None:
    """With vectors as they were written, bit for bit, and all that is known of them."""
    name = f"by_{index[0].lower()}"
    rows = [{"code": n, "vector": VECTORS[n], "sku": "a"} for n in range(N)]
    make_collection(client, name, rows, dim=DIM, index=index, sku="VARCHAR")
    try:
        reader = engine.over(table(name))
        assert reader.searched_by == f"{index[0]} ({index[1]})"
        found = reader.search(QUERIES, 10, N)
        for query, one in zip(QUERIES, found, strict=True):
            places = [int(code) for code in one.ids]
            assert places == nearest(query, np.arange(N), index[1])[:10].tolist()
            assert one.vectors.tobytes() == VECTORS[places].tobytes()
        among = [str(n) for n in range(0, N, 7)]
        within = reader.search(QUERIES[:1], 10, 10, among)[0]
        assert [int(one) for one in within.ids] == nearest(QUERIES[0], np.arange(0, N, 7), index[1])[
            :10
        ].tolist()
        assert len(reader.search(QUERIES[:1], 100, 10)[0].ids) == 100
    finally:
        client.drop_collection(name)


def nearest(query: np.ndarray, places: np.ndarray, metric: str) -> np.ndarray:
    rows = VECTORS[places].astype(np.float64)
    products = rows @ query
    if metric == "COSINE":
        products /= np.linalg.norm(rows, axis=1)
    if metric == "L2":
        products -= (rows**2).sum(axis=1) / 2
    return places[np.argsort(-products, kind="stable")]


def test_values_are_what_a_source_of_the_collection_gives(small: str, engine: MilvusEngine) -> None:
    """Fields of the schema, and those that stand in none."""
    reader = engine.over(table(small))
    assert reader.schema.names == ["code", "sku", UNNAMED]
    rows = reader.fetch(['"0007', '"0002', "gone"])
    assert sorted(rows.ids) == ['"0002', '"0007']
    values = dict(zip(rows.ids, rows.values, strict=True))
    assert values['"0007'][:2] == ('"0007', "sku 1")
    assert json.loads(values['"0007'][2]) == {"shade": 7}
    found = reader.search(VECTORS[7:8], 1, 1)[0]
    assert (found.ids, [*map(tuple, found.values)]) == (['"0007'], [values['"0007']])
    unnamed = engine.over(table(small, label="shade"))
    assert unnamed.fetch(['"0007']).values[0] == ('"0007', "sku 1", "7", "{}")


def test_what_becomes_of_a_collection_is_seen(client: Any, small: str, engine: MilvusEngine) -> None:
    """Rows that come and go, and rows in the place of the first ones."""
    reader = engine.over(table(small))
    before = reader.mark()
    assert change(before, reader) is None
    client.insert(small, [row(n) for n in range(20, 23)])
    wait_until(lambda: change(before, reader) == "has 3 rows more")
    client.delete(small, ids=[row(22)["code"]])
    wait_until(lambda: change(before, reader) == "has 2 rows more")
    between = reader.mark()
    client.upsert(small, [row(3, vector=VECTORS[100])])
    wait_until(lambda: change(between, reader) == "has other rows, or changed ones")
    # Of an upsert Milvus shows for a moment that the row went, and not yet that it came.
    wait_until(lambda: reader.fetch([row(3)["code"]]).vectors.tobytes() == VECTORS[100].tobytes())


def change(mark: TableMark, reader: MilvusReader) -> str | None:
    found = mark.change(reader.mark())
    return None if found is None else found.words


def test_a_collection_that_is_not_what_it_was_is_said_in_one_sentence(
    client: Any, small: str, engine: MilvusEngine
) -> None:
    """Gone, released, made again with other fields or vectors."""
    reader = engine.over(table(small))
    assert len(reader.search(QUERIES, 3, 3)) == 5
    client.release_collection(small)
    with pytest.raises(EngineTableError, match=f"collection '{small}' is not loaded in Milvus, or not yet"):
        reader.search(QUERIES, 3, 3)
    client.drop_collection(small)
    with pytest.raises(
        EngineTableError, match=f"does not have the collection '{small}' any more: run vicinal"
    ):
        reader.search(QUERIES, 3, 3)
    make_collection(client, small, [{"code": 1, "vector": [1.0, 0.0]}], dim=2)
    with pytest.raises(EngineTableError, match=f"collection '{small}' holds other vectors now"):
        reader.search(QUERIES, 3, 3)
    with pytest.raises(EngineTableError, match=f"collection '{small}' has no field 'gone' any more"):
        engine.over(table(small, embedding="gone")).fetch(["1"])
    with pytest.raises(EngineTableError, match="holds no texts or whole numbers"):
        engine.over(table(small, id="vector")).fetch(["1"])
    assert engine.over(table(small)).fetch(["1", "a"]).ids == ["1"]
