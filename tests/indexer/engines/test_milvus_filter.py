"""Filters in Milvus: every row that one selects fulfils the expression, for the whole grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.indexer.filters.interpreter import holds
from tests.indexer.filters.test_filter import EXPRESSIONS, ITEMS, SHOP, written
from tests.milvus_server import MilvusServer
from vicinal.indexer.engines.milvus import MilvusEngine
from vicinal.indexer.engines.milvus_filter import compiled, stored
from vicinal.indexer.filters import Filter
from vicinal.indexer.filters.expressions import Expression
from vicinal.models.progress import no_progress


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("label = 'shoe'", 'label in ["shoe"]'),
        ("label != 'a\"b' AND id >= 'x'", '(not (label in ["a\\"b"]) and id >= "x")'),
        ("NOT (id < 'x' AND id > 'a')", '(id >= "x" or id <= "a")'),
        ("label IS NULL", 'label == ""'),
        ("metadata.a IS NULL", ""),
        ("metadata.a.b IS NOT NULL", '(exists metadata["a"]["b"])'),
        ("metadata.a != 'x' AND label = 'y'", 'label in ["y"]'),
        ("metadata.a != 'x' OR label = 'y'", ""),
        ("metadata.a < 2", '(metadata["a"] < 2.0 or (metadata["a"] >= "-" and metadata["a"] < ":"))'),
        ("metadata.a < 9007199254740993", ""),
        ("metadata.a IN ('x', true)", '(metadata["a"] in ["x"] or metadata["a"] in [true])'),
        ("id LIKE 'shoe/%'", 'id like "shoe/%"'),
        (r"id LIKE 'sh\_e%'", 'id like "sh%"'),
        ("id LIKE '%shoe'", ""),
        ("metadata.a > DATE '2024-05-01'", 'metadata["a"] >= "2024-05-01U"'),
        (
            "metadata.a = DATE '2024-05-01'",
            '(metadata["a"] >= "2024-05-01" and metadata["a"] < "2024-05-01U")',
        ),
    ],
)
def test_a_filter_is_compiled_to_what_holds_at_least_for_its_rows(text: str, expression: str) -> None:
    assert compiled(Filter.of(text)) == expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {}),
        ('{"a": 9223372036854775808, "b": -1e999}', {"a": 2**63 - 1, "b": -1.7976931348623157e308}),
        ('{"a": %s}' % ("1" * 5000), {"a": 2**63 - 1}),
        (r'{"a": "x\ud800y", "b": "\ud83c\udf88"}', {"a": "x?y", "b": "🎈"}),
    ],
)
def test_what_milvus_cannot_hold_is_stored_as_what_compares_alike(
    text: str | None, expected: dict[str, Any]
) -> None:
    assert stored(text) == expected


def selected(engine: MilvusEngine, name: str, expression: Expression, n: int) -> set[int]:
    found = engine.search(name, np.ones((1, 4), np.float32), n, n, Filter.of(written(expression)))
    return set(found[0][found[0] >= 0].tolist())


def filled(engine: MilvusEngine, name: str, items: Sequence[dict[str, Any]]) -> None:
    told = {
        "id": pa.array([item["id"] for item in items], pa.string()),
        "label": pa.array([item["label"] for item in items], pa.string()),
        "uri": pa.array([""] * len(items), pa.string()),
        "metadata": pa.array([json.dumps(item["metadata"]) for item in items], pa.string()),
    }
    engine.build(name, np.full((len(items), 4), 0.5, np.float32), pa.table(told), no_progress)


@pytest.mark.slow
def test_every_row_that_a_filter_selects_is_found(milvus_server: MilvusServer) -> None:
    """Of a few hundred drawn items in one collection, and drawn filters of the whole grammar."""
    engine, items = MilvusEngine(milvus_server.url), list(SHOP)

    @settings(database=None, max_examples=40)
    @given(ITEMS)
    def draw(drawn: list[dict[str, Any]]) -> None:
        items.extend(drawn)

    draw()
    filled(engine, "vicinal_filters_1", items)
    n_exact = []

    @settings(max_examples=150)
    @given(st.lists(EXPRESSIONS, min_size=1, max_size=3))
    def compare(expressions: list[Expression]) -> None:
        for expression in expressions:
            expected = {n for n, item in enumerate(items) if holds(expression, item)}
            found = selected(engine, "vicinal_filters_1", expression, len(items))
            assert expected <= found
            n_exact.append(len(found) < len(items))

    compare()
    # Not by saying nothing.
    assert sum(n_exact) > len(n_exact) / 4
    engine.drop("vicinal_filters_1")
    engine.close()
