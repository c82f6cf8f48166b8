"""Filters: each selects exactly the rows that a plain reading of it selects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.indexer.filters.interpreter import holds
from vicinal.indexer.filters import Filter
from vicinal.indexer.filters.expressions import (
    And,
    Expression,
    Field,
    Like,
    Literal,
    Missing,
    Not,
    OneOf,
    Or,
    Ordered,
)
from vicinal.indexer.storage.item_table import ItemTable, as_fixed_lists

KEYS = ["a", "b", "list price", "a.b", 'q"', "é鞋", "in", "2024", "back\\slash", "o'k", "$", "*", "\n"]
TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(
        ["red", "Red", "re%d", "r_d", "a\\b", 'a"b', "o'brien", "5", "null", "true", "", "[1]", "\x01\n"]
    ),
    st.sampled_from(
        [
            "50.0",
            "49.50",
            "-0.00",
            "05",
            "1e2",
            "+5",
            ".5",
            "5.",
            "5\n",
            "\u0665",
            "9007199254740993",
            "1" * 400,
        ]
    ),
    st.sampled_from(
        ["2024-05-01", "2024-05-01T10:00:00Z", "2024-05-02 09:00", "2024-05-011", "2024-05", "May 1"]
    ),
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from(
        [0, -0.0, 0.0, 1, 1.0, 50, 49.5, 2**53, 2**53 + 1, float(2**53), -(2**63), 10**15, 1e15, 1e300]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
)
DAYS = st.sampled_from([date(2024, 5, 1), date(2024, 5, 2), date(1, 1, 1)])
VALUES = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none())
METADATA = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(
        VALUES, st.lists(VALUES, max_size=2), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)
    ),
    max_size=5,
)
ITEMS = st.lists(
    st.fixed_dictionaries({"id": TEXTS, "label": st.none() | TEXTS, "metadata": METADATA}),
    min_size=1,
    max_size=12,
)

COLUMNS = st.sampled_from([Field(("id",)), Field(("label",))])
METADATA_FIELDS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2).map(
    lambda keys: Field(("metadata", *keys))
)
PATTERNS = (
    st.lists(st.sampled_from(["%", "_", r"\%", r"\_", r"\\", "r", "d", '"', "5", "é", "\n"]), max_size=6)
    .filter(lambda signs: signs.count("_") <= 1 and signs.count("%") <= 3)
    .map("".join)
)
SIGNS = st.sampled_from(["<", "<=", ">", ">="])


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=1, max_size=3).map(tuple)


LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.builds(OneOf, COLUMNS, _some(TEXTS)),
    st.builds(OneOf, METADATA_FIELDS, _some(st.one_of(TEXTS, NUMBERS, st.booleans(), DAYS))),
    st.builds(Ordered, COLUMNS, SIGNS, TEXTS),
    st.builds(Ordered, METADATA_FIELDS, SIGNS, st.one_of(TEXTS, NUMBERS, DAYS)),
    st.builds(Like, st.one_of(COLUMNS, METADATA_FIELDS), PATTERNS),
    st.builds(Missing, st.one_of(COLUMNS, METADATA_FIELDS)),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(And, st.lists(parts, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def table_of(items: Sequence[dict[str, Any]], path: Path) -> ItemTable:
    table = ItemTable(path / "items.lance", "shoes")
    n = len(items)
    rows = {
        "id": pa.array([item["id"] for item in items], pa.string()),
        "label": pa.array([item["label"] for item in items], pa.string()),
        "uri": pa.array([""] * n, pa.string()),
        "metadata": pa.array([json.dumps(item["metadata"]) for item in items], pa.string()),
        "thumbnail": pa.array([b""] * n, pa.binary()),
        "embedding": as_fixed_lists(np.full((n, 4), 0.5, np.float32)),
    }
    table.start(pa.table(rows), {"bundle": "0" * 16, "bundle_name": "tiny"})
    return table


def selected(table: ItemTable, text: str) -> list[int]:
    return table.matching(table.latest().version, Filter.of(text)).tolist()


def written(expression: Expression) -> str:
    """An expression as a person would write it."""
    match expression:
        case Not():
            return f"NOT ({written(expression.part)})"
        case And() | Or():
            word = " AND " if isinstance(expression, And) else " or "
            return "(" + word.join(f"({written(part)})" for part in expression.parts) + ")"
    name = expression.field.path[0] + "".join(
        f'."{key.replace(chr(34), chr(34) * 2)}"' for key in expression.field.keys
    )
    match expression:
        case OneOf(values=(value,)):
            return f"{name} = {literal(value)}"
        case OneOf():
            return f"{name} IN ({', '.join(map(literal, expression.values))})"
        case Like():
            return f"{name} LIKE {literal(expression.pattern)}"
        case Ordered():
            return f"{name} {expression.operator} {literal(expression.value)}"
    return f"{name} IS NULL"


def literal(value: Literal) -> str:
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value).lower()


@given(items=ITEMS, expressions=st.lists(EXPRESSIONS, min_size=1, max_size=8))
def test_a_filter_selects_what_a_plain_reading_of_it_selects(
    items: list[dict[str, Any]], expressions: list[Expression]
) -> None:
    with TemporaryDirectory() as path:
        table = table_of(items, Path(path))
        for expression in expressions:
            read = Filter.of(written(expression)).expression
            expected = [n for n, item in enumerate(items) if holds(expression, item)]
            assert [n for n, item in enumerate(items) if holds(read, item)] == expected
            assert selected(table, written(expression)) == expected


SHOP = [
    {
        "id": "a",
        "label": "shoe",
        "metadata": {"price": 49, "color": "red", "sold": True, "day": "2024-05-01T10:00:00Z"},
    },
    {
        "id": "b",
        "label": "shoe",
        "metadata": {"price": 50.0, "color": "Red", "sold": False, "day": "2024-05-02"},
    },
    {
        "id": "c",
        "label": None,
        "metadata": {"price": "49", "color": None, "size": {"eu": 42, "list price": 9}},
    },
    {
        "id": "d",
        "label": "o'brien",
        "metadata": {"number": 2**53 + 1, "tags": ["x"], "text": '50% "off"\\ now\n'},
    },
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ItemTable:
    return table_of(SHOP, tmp_path_factory.mktemp("shop"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.price < 50", "ac"),
        ("metadata.price <= 50", "abc"),
        ("metadata.price = 50", "b"),
        ("metadata.price = '49'", "c"),
        ("metadata.price = 49", "ac"),
        ("metadata.price != 49", "b"),
        ("metadata.price != '49'", "ab"),
        ("NOT metadata.price < 50", "b"),
        ("metadata.price IN (49, 'x')", "ac"),
        ("metadata.price NOT IN (49, 50)", ""),
        ("metadata.price BETWEEN 49 AND 50", "abc"),
        ("metadata.price NOT BETWEEN 49 AND 49.5", "b"),
        ("metadata.color IS NULL", "cd"),
        ("metadata.color IS NOT NULL", "ab"),
        ("metadata.color != 'red'", "b"),
        ("metadata.color LIKE 'r%'", "a"),
        ("metadata.color NOT LIKE 'r%'", "b"),
        ("metadata.color > 'Z'", "a"),
        ("metadata.sold = true", "a"),
        ("metadata.sold != TRUE", "b"),
        ("metadata.day = DATE '2024-05-01'", "a"),
        ("metadata.day > date '2024-05-01'", "b"),
        ("metadata.day >= '2024-05-01T10'", "ab"),
        ("metadata.size.eu = 42", "c"),
        ('metadata.size."list price" = 9', "c"),
        ("metadata.size.eu.deeper IS NULL", "abcd"),
        ("metadata.size IS NOT NULL", "c"),
        ("metadata.tags = 'x'", ""),
        ("metadata.tags.x IS NULL", "abcd"),
        (f"metadata.number = {2**53 + 1}", "d"),
        (f"metadata.number = {2**53}", ""),
        (f"metadata.number > {2**53}", "d"),
        (r"metadata.text LIKE '50\% %'", "d"),
        ("metadata.text LIKE '____\"off\"%'", "d"),
        (r"metadata.text LIKE '%\\ now_'", "d"),
        ("label IS NULL", "c"),
        ("label != 'shoe'", "d"),
        ("label = 'o''brien'", "d"),
        ("label LIKE '_hoe' and not id = 'a'", "b"),
        ("id = 'a' OR id = 'b' AND label = 'none'", "a"),
        ("(id = 'a' OR id = 'b') AND metadata.price > 49", "b"),
        ("id in ('a','d')", "ad"),
        ("id >= 'c'", "cd"),
        ("metadata.price = -0", ""),
    ],
)
def test_a_filter_selects(shop: ItemTable, text: str, expected: str) -> None:
    assert "".join(SHOP[n]["id"] for n in selected(shop, text)) == expected


@pytest.mark.parametrize(
    ("written_as", "filter_text", "is_found"),
    [
        ("12.50", "metadata.x < 50", True),
        ("12.50", "metadata.x = 12.5", True),
        ("12.50", "metadata.x = '12.50'", True),
        ("12.50", "metadata.x = '12.5'", False),
        ("-3.10", "metadata.x BETWEEN -4 AND -3", True),
        ("100", "metadata.x > 99.99", True),
        ("100", "metadata.x > '99.99'", False),
        ("9007199254740993", "metadata.x > 9007199254740992", True),
        ("12345678901234567890123", "metadata.x = 12345678901234567890123", True),
        ("00123", "metadata.x = 123", False),
        ("+4930123", "metadata.x > 0", False),
        ("1e5", "metadata.x > 0", False),
        ("12,50", "metadata.x < 50", False),
        ("12.50 EUR", "metadata.x < 50", False),
        (" 12.50", "metadata.x < 50", False),
        ("", "metadata.x < 50", False),
    ],
)
def test_a_number_finds_plain_decimal_numbers_that_stand_as_texts(
    tmp_path: Path, written_as: str, filter_text: str, is_found: bool
) -> None:
    """Prices of a CSV file stay as they were written, and article numbers such as 00123 are no numbers."""
    table = table_of([{"id": "a", "label": None, "metadata": {"x": written_as}}], tmp_path)
    assert selected(table, filter_text) == [0] * is_found


def test_only_the_names_of_fields_reach_the_database() -> None:
    """Negative control of the escaping is the property above, whose keys hold quotes of all kinds."""
    columns = Filter.of("""metadata."o'k" = 'secret' AND label = 'x' AND metadata."o'k" > 5""").columns()
    assert list(columns.values()) == ["""json_extract(metadata, '$."o''k"')""", "label"]


def test_filters_of_one_text_are_equal_and_others_are_not() -> None:
    assert Filter.of("metadata.a = 1") == Filter.of("metadata.a = 1")
    assert Filter.of("metadata.a = 1") != Filter.of("metadata.a = true")
