"""Collections of Milvus as sources, by the real server of the package `milvus` (2.3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.milvus_collections import make_collection, milvus_client
from tests.milvus_server import PASSWORD, MilvusServer
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import EmbeddingSource, SourceOptions, holds_embeddings, source_name
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.sources.engine_tables import let_in
from vicinal.indexer.sources.engine_tables.milvus import reader_of_vectors
from vicinal.models.similarity import normalize

pytestmark = pytest.mark.slow
DIM = 4
ROWS: FloatArray = np.random.default_rng(0).normal(size=(25, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def client(milvus_server: MilvusServer) -> Iterator[Any]:
    with milvus_client(milvus_server.url) as client:
        yield client


@pytest.fixture(scope="module")
def shop(client: Any, milvus_server: MilvusServer) -> Iterator[MilvusServer]:
    """A collection of 25 products, whose keys are texts that need quotes."""
    fields = {"sku": "VARCHAR", "price": "FLOAT", "n": "INT8", "is_new": "BOOL", "tags": "JSON"}
    rows = [
        {"code": code(n), "vector": ROWS[n], "sku": sku(n), "price": n / 4, "n": n, "is_new": n % 2 == 0}
        | {"tags": {"of": [n]}}
        | ({"shade": "red", "size": {"cm": n}} if n % 3 else {"shade": n})
        for n in reversed(range(25))
    ]
    make_collection(client, "products", rows, dim=DIM, key="VARCHAR", **fields)
    yield milvus_server
    client.drop_collection("products")


def code(n: int) -> str:
    return f'{n:02} "é\\'


def sku(n: int) -> str:
    return f"sku {n % 3}" if n % 5 else ""


def address(server: MilvusServer, collection: str = "products", **given: str) -> str:
    words = "".join(f"&{name}={value}" for name, value in given.items())
    return f"{server.url.replace('http', 'milvus')}/default?collection={collection}{words}"


def read(source: EmbeddingSource) -> ReadyRows:
    (rows,) = source.batches(1000)
    return rows


def test_rows_are_read_in_the_order_of_their_keys(
    shop: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is the id and the only vector the embedding; all other fields are metadata, named in the schema
    or not.
    """
    monkeypatch.setattr("vicinal.indexer.sources.engine_tables.milvus._ROWS_A_PART", 7)
    rows = read(EmbeddingSource.open(address(shop, label="sku")))
    assert rows.ids.to_pylist() == [code(n) for n in range(25)]
    assert rows.labels.to_pylist() == [sku(n) or None for n in range(25)]
    assert json.loads(rows.metadata[7].as_py()) == {
        "price": 1.75,
        "n": 7,
        "is_new": False,
        "tags": {"of": [7]},
        "shade": "red",
        "size": {"cm": 7},
    }
    np.testing.assert_allclose(rows.embeddings, normalize(ROWS), atol=1e-6)


def test_what_stands_in_no_schema_may_be_the_label(shop: MilvusServer) -> None:
    """Numbers are read as texts, as from every source; it is then no metadata."""
    rows = read(EmbeddingSource.open(address(shop, label="shade")))
    assert rows.labels[:3].to_pylist() == ["0", "red", "red"]
    assert json.loads(rows.metadata[1].as_py())["sku"] == "sku 1"
    assert "shade" not in json.loads(rows.metadata[1].as_py())
    with pytest.raises(SourceError, match=r"'size' of 'products' holds .*, in row 2 a value of type dict"):
        EmbeddingSource.open(address(shop, label="size")).look()


def test_options_come_before_the_names_of_the_address(shop: MilvusServer) -> None:
    """A field that the command names is taken, and one that is no key may hold the ids."""
    opened = EmbeddingSource.open(
        address(shop, label="sku"), SourceOptions(label_column="price", prefix="shop")
    )
    assert read(opened).labels[7].as_py() == "1.75"
    assert read(opened).ids[7].as_py() == "shop/" + code(7)
    assert read(EmbeddingSource.open(address(shop, id="n"))).ids.to_pylist() == [str(n) for n in range(25)]


def test_keys_may_be_numbers_below_zero(client: Any, milvus_server: MilvusServer) -> None:
    """Their order is that of numbers."""
    try:
        # A question without a filter leaves the last of all numbers out, 2**63 - 1.
        keys = [-(2**63), -70, -9, 0, 9, 70, 2**63 - 2]
        make_collection(client, "numbers", [{"code": key, "vector": ROWS[0]} for key in keys], dim=DIM)
        rows = read(EmbeddingSource.open(address(milvus_server, "numbers")))
        assert rows.ids.to_pylist() == [str(key) for key in keys]
    finally:
        client.drop_collection("numbers")


def test_the_identity_changes_with_the_collection(client: Any, milvus_server: MilvusServer) -> None:
    """Rows that come and go, and others in the place of the first ones."""
    try:
        rows = [{"code": n, "vector": ROWS[n]} for n in range(25)]
        make_collection(client, "moving", rows, dim=DIM)
        found = [identity(milvus_server), identity(milvus_server)]
        client.delete("moving", ids=[24])
        found.append(identity(milvus_server))
        client.upsert("moving", [{"code": 3, "vector": ROWS[4]}])
        found.append(identity(milvus_server))
        assert found[0] == found[1]
        assert len({*found}) == 3
    finally:
        client.drop_collection("moving")


def identity(server: MilvusServer) -> str:
    return str(EmbeddingSource.open(address(server, "moving")).identity())


def test_the_name_of_a_source_lets_nobody_in(milvus_server: MilvusServer) -> None:
    """A gallery keeps where its items come from, and neither user nor password."""
    name = source_name(address(milvus_server))
    assert name == f"milvus://{milvus_server.address}/default?collection=products"
    assert holds_embeddings(address(milvus_server))


def test_the_setting_lets_in_where_the_address_says_nobody(shop: MilvusServer) -> None:
    """To the same server alone, so that no password goes elsewhere."""
    bare = f"milvus://{shop.address}?collection=products&label=sku"
    servers = {"milvus": shop.url}
    assert len(read(EmbeddingSource.open(let_in(bare, servers))).ids) == 25
    assert let_in(bare, {}) == bare
    assert let_in(bare, {"milvus": "http://root:word@127.0.0.1:1"}) == bare
    other = bare.replace("milvus://", "milvus://me:mine@")
    assert let_in(other, servers) == other
    secure = {"milvus": shop.url.replace("http", "https")}
    assert let_in(bare, secure) == f"milvus://root:{PASSWORD}@{bare.removeprefix('milvus://')}&secure=true"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{url}", "names no collection: write milvus://"),
        ("{url}?collection=nothing", "Milvus does not have a collection of this"),
        ("{url}/nowhere?collection=products", "of this name in the database of the address"),
        ("{url}?collection=products&id=gone", "collection 'products' has no field 'gone', only code, vector"),
        ("{url}?collection=products&embedding=gone", "has no field 'gone', only code, vector"),
        ("{url}?collection=products&embedding=sku", "field 'sku' of .* holds VARCHAR, expected FLOAT_VECTOR"),
        ("{url}?collection=products&label=gone", "no row of 'products' has a field 'gone'"),
        ("{url}?collection=released", "the collection is not loaded"),
        ("{url}?collection=empty", "holds no rows"),
        ("{url}?collection=products&password=wrong-word", "says 'password', which is no word of an address"),
        ("{stranger}?collection=products", "refuses the user, the password or the token of the address"),
        ("{elsewhere}?collection=products", "Milvus does not answer"),
        ("{url}/a/b?collection=products", "the address is no address of Milvus: write milvus://USER"),
        ("milvus://me:wrong-word@host:port?collection=products", "is no address of Milvus"),
    ],
)
def test_what_cannot_be_read_is_said_without_secrets(
    client: Any, shop: MilvusServer, place: str, words: str
) -> None:
    """Each refusal names the collection and what would help."""
    for name in ("released", "empty"):
        if not client.has_collection(name):
            index = ("FLAT", "COSINE", {}) if name == "empty" else None
            make_collection(client, name, dim=DIM, index=index)
    url = shop.url.replace("http", "milvus")
    given = {
        "url": url,
        "stranger": url.replace(PASSWORD, "wrong-word"),
        "elsewhere": f"milvus://me:{PASSWORD}@127.0.0.1:1",
    }
    with pytest.raises(SourceError, match=words) as caught:
        EmbeddingSource.open(place.format_map(given))
    assert "root" not in str(caught.value)
    assert "wrong-word" not in str(caught.value)


@pytest.mark.parametrize("kind", ["FLOAT16_VECTOR", "BFLOAT16_VECTOR"])
@pytest.mark.parametrize("is_listed", [True, False])
def test_vectors_of_16_bits_come_as_bytes(kind: str, is_listed: bool) -> None:
    """The server of the tests has none: these are the bytes that pymilvus gives of later ones."""
    bits = ROWS.astype("<f2") if kind == "FLOAT16_VECTOR" else (ROWS.view("<u4") >> 16).astype("<u2")
    held = [bits[n].tobytes() for n in range(25)]
    read_one = reader_of_vectors("vector", kind)
    found = np.stack([read_one({"vector": [one] if is_listed else one}) for one in held])
    np.testing.assert_allclose(found, ROWS, rtol=2**-7)
    assert read_one({"vector": None}) is None
