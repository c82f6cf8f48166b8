"""Tables of PostgreSQL as sources: what a team has becomes a gallery, and nothing says how to get in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests.postgres_server import PASSWORD, PostgresServer
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import EmbeddingSource, SourceOptions, holds_embeddings, source_name
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.models.similarity import normalize

DIM = 4
ROWS: FloatArray = np.random.default_rng(0).normal(size=(25, DIM)).astype(np.float32)


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A table of 25 products in the database of a shop."""
    postgres.run("DROP SCHEMA IF EXISTS shop CASCADE")
    postgres.run("CREATE SCHEMA shop")
    postgres.run(
        "CREATE TABLE shop.products (code int PRIMARY KEY, sku text, price numeric(8, 2), sold timestamptz, "
        f"tags jsonb, photo bytea, vector vector({DIM}))"
    )
    with postgres.connected() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO shop.products "
            "VALUES (%s, %s, %s, '2026-01-31 10:00+00', %s::jsonb, 'x', %s::vector)",
            [(n, sku(n), n / 4, json.dumps({"n": n, "of": [1]}), str(ROWS[n].tolist())) for n in range(25)],
        )
    yield postgres
    postgres.run("DROP SCHEMA shop CASCADE")


def sku(n: int) -> str | None:
    return f"sku {n % 3}" if n % 5 else None


def address(server: PostgresServer, table: str = "shop.products", **columns: str) -> str:
    named = {"embedding": "vector", "id": "code", "label": "sku", **columns}
    return f"{server.url()}?table={table}" + "".join(f"&{name}={column}" for name, column in named.items())


def read(source: EmbeddingSource) -> ReadyRows:
    (rows,) = source.batches(1000)
    return rows


@pytest.mark.parametrize("kind", ["vector", "halfvec", "real[]", "double precision[]"])
def test_rows_are_read_in_the_order_of_their_ids(shop: PostgresServer, kind: str) -> None:
    """Ids and labels are texts, all other columns metadata, whatever kind of column has the embeddings."""
    if kind != "vector":
        shop.run(f"ALTER TABLE shop.products ALTER vector TYPE {kind} USING vector::real[]::{kind}")
    source = EmbeddingSource.open(address(shop))
    rows = read(source)
    assert rows.ids.to_pylist() == [str(n) for n in range(25)]
    assert rows.labels.to_pylist() == [sku(n) for n in range(25)]
    assert json.loads(rows.metadata[7].as_py()) == {
        "price": "1.75",
        "sold": "2026-01-31T10:00:00+00:00",
        "tags": {"n": 7, "of": [1]},
    }
    tolerance = 1e-3 if kind == "halfvec" else 1e-6
    np.testing.assert_allclose(rows.embeddings, normalize(ROWS), atol=tolerance)


def test_rows_come_in_parts_that_belong_to_one_moment(shop: PostgresServer) -> None:
    """A row that goes after a table was read shifts no label to another one's embedding, and its owner waits
    for nobody.
    """
    source = EmbeddingSource.open(address(shop))
    shop.run("DELETE FROM shop.products WHERE code < 10")
    shop.run("ALTER TABLE shop.products DROP COLUMN price")
    parts = list(source.batches(4))
    assert [len(part.ids) for part in parts] == [4] * 6 + [1]
    assert [one for part in parts for one in part.ids.to_pylist()] == [str(n) for n in range(25)]


def test_a_row_without_an_embedding_is_left_out_and_named(shop: PostgresServer) -> None:
    """Others are taken."""
    shop.run("UPDATE shop.products SET vector = NULL WHERE code = 3")
    source = EmbeddingSource.open(address(shop))
    assert len(read(source).ids) == 24
    assert [one.problem for one in source.problems] == ["row 4 of 'shop.products' has no embedding"]


def test_a_view_is_a_table(shop: PostgresServer) -> None:
    """What is to be searched is chosen by SQL, and columns that are called as usual need no names."""
    shop.run(
        "CREATE VIEW shop.cheap AS SELECT code::text AS id, sku AS label, vector AS embedding "
        "FROM shop.products WHERE price < 2"
    )
    rows = read(EmbeddingSource.open(f"{shop.url()}?table=shop.cheap"))
    assert sorted(rows.ids.to_pylist(), key=int) == [str(n) for n in range(8)]


def test_options_come_before_the_names_of_the_address(shop: PostgresServer) -> None:
    """A column that the command names is taken, and none where it says so."""
    opened = EmbeddingSource.open(address(shop), SourceOptions(label_column="price", prefix="shop"))
    assert read(opened).labels[7].as_py() == "1.75"
    assert read(opened).ids[7].as_py() == "shop/7"
    assert read(EmbeddingSource.open(address(shop), SourceOptions(label_from="none"))).labels.null_count == 25


def test_the_identity_changes_with_the_table(shop: PostgresServer) -> None:
    """What was indexed is known by it."""
    before = EmbeddingSource.open(address(shop)).identity()
    assert EmbeddingSource.open(address(shop)).identity() == before
    shop.run("DELETE FROM shop.products WHERE code = 24")
    assert EmbeddingSource.open(address(shop)).identity() != before


def test_the_name_of_a_source_lets_nobody_in(shop: PostgresServer) -> None:
    """A gallery keeps where its items come from, and neither user nor password."""
    name = source_name(address(shop))
    assert name == f"postgres://127.0.0.1:{shop.port}/postgres?table=shop.products"
    assert holds_embeddings(address(shop))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{url}", "names no table"),
        ("{url}?table=shop.nothing&id=code", "there is no table of this name"),
        ("{url}?table=shop.products&embedding=vector", "has no column 'id', only code, sku"),
        ("{url}?table=shop.products&id=code", "has no column 'embedding', only code, sku"),
        ("{url}?table=shop.products&id=code&embedding=sku", "holds text, expected vector"),
        ("{url}?table=shop.products&id=code&embedding=vector&label=gone", "has no 'gone'"),
        ("{url}?table=shop.products&id=sku&embedding=vector", "has the id 'sku 0' of row 1"),
        ("{stranger}?table=shop.products", "lets nobody in by this user and password"),
        ("{elsewhere}?table=shop.products", "does not answer"),
    ],
)
def test_what_cannot_be_read_is_said_without_secrets(shop: PostgresServer, place: str, words: str) -> None:
    """Each refusal names the table and what would help."""
    stranger, elsewhere = shop.url(password="wrong-word"), f"postgresql://vicinal:{PASSWORD}@127.0.0.1:1/x"
    with pytest.raises(SourceError) as caught:
        EmbeddingSource.open(place.format(url=shop.url(), stranger=stranger, elsewhere=elsewhere))
    assert words in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert "wrong-word" not in str(caught.value)


def test_embeddings_of_two_lengths_are_refused(shop: PostgresServer) -> None:
    """A column of arrays may hold any."""
    shop.run("ALTER TABLE shop.products ALTER vector TYPE real[] USING vector::real[]")
    shop.run("UPDATE shop.products SET vector = '{1, 2}' WHERE code = 2")
    source = EmbeddingSource.open(address(shop))
    with pytest.raises(SourceError, match="has an embedding of 2 numbers"):
        read(source)
