"""Filters in SQL: PostgreSQL selects what Arrow selects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.indexer.filters.test_filter import EXPRESSIONS, ITEMS, SHOP, selected, table_of, written
from tests.postgres_server import PostgresServer
from vicinal.indexer.engines.postgres_filter import compiled, stored
from vicinal.indexer.filters import Filter
from vicinal.indexer.filters.expressions import Expression
from vicinal.indexer.storage.item_table import ItemTable


def by_postgres(connection: Any, table: ItemTable, texts: Sequence[str]) -> list[list[int]]:
    """Rows that each of some filters selects."""
    rows = table.columns(table.latest().version, ["id", "label", "metadata"]).to_pydict()
    connection.execute("CREATE TEMP TABLE items (position integer, id text, label text, metadata jsonb)")
    try:
        for position, row in enumerate(zip(*rows.values(), strict=True)):
            statement = "INSERT INTO items VALUES (%s, %s, %s, %s)"
            connection.execute(statement, [position, *stored(*row)])
        found = []
        for text in texts:
            condition, values = compiled(Filter.of(text))
            statement = f"SELECT position FROM items WHERE {condition} ORDER BY 1"
            found.append([position for (position,) in connection.execute(statement, values)])
    finally:
        connection.execute("DROP TABLE items")
    return found


@pytest.mark.slow
def test_postgres_selects_what_arrow_selects(postgres: PostgresServer) -> None:
    with postgres.connected() as connection:

        @settings(deadline=None, max_examples=60)
        @given(items=ITEMS, expressions=st.lists(EXPRESSIONS, min_size=1, max_size=8))
        def agree(items: list[dict[str, Any]], expressions: list[Expression]) -> None:
            texts = [written(expression) for expression in expressions]
            with TemporaryDirectory() as path:
                table = table_of(items, Path(path))
                assert by_postgres(connection, table, texts) == [selected(table, text) for text in texts]

        agree()


def test_what_postgres_cannot_store_is_stored_as_something_else(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    odd = {"nul": "a\0b", "half": "\ud800", "n\0l": 1, "large": 1e22, "price": 5}
    items = [*SHOP, {"id": "a\0b", "label": "\0", "metadata": odd}]
    table = table_of(items, tmp_path)
    texts = ["metadata.price = 5", "id LIKE 'a%'", "metadata.large >= 1e22", "metadata.nul LIKE 'a_b'"]
    with postgres.connected() as connection:
        found = by_postgres(connection, table, texts)
    assert found == [[4], [0, 4], [4], [4]]
