"""Filters in SQL: a condition on a table of items that selects what `Filter.selects` does.

A value of metadata is `metadata -> 'a' -> 'b'`; the null of JSON is none. Numbers are compared as float64,
and from 2^53 on as the decimals that they are, as `Filter` does. Every literal and key is a parameter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from vicinal.indexer.filters import Filter
from vicinal.indexer.filters.expressions import (
    And,
    Expression,
    Field,
    Like,
    Literal,
    Missing,
    Not,
    Or,
    Ordered,
)

Condition = tuple[str, list[Any]]

_ALL: Condition = ("true", [])
_LARGE = 2**53
_WRITTEN_NUMBER = "^-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?$"
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"
# JSON that PostgreSQL refuses, or whose large numbers it takes for others.
_ODD_JSON = re.compile(r"\\u(?:0000|[dD][89a-fA-F])|[0-9][eE]|[0-9]{16}")


def compiled(filter: Filter | None) -> Condition:
    """Condition on columns `id`, `label` and `metadata` with blanks `%s`, and the values of these."""
    return _ALL if filter is None else _condition(filter.expression)


def stored(
    item_id: str | None, label: str | None, metadata: str | None
) -> tuple[str | None, str | None, Any]:
    """An item's id, label and metadata as a table of PostgreSQL takes them.

    It knows no NUL in texts and no half of a surrogate pair, and stores others in their place: a filter then
    may select too much or too little of such items, and searches leave out what was selected too much.
    """
    from psycopg.types.json import Jsonb

    text = metadata or "{}"
    if _ODD_JSON.search(text):
        text = json.dumps(_plain(json.loads(text)))
    return _plain(item_id), _plain(label), Jsonb(text, dumps=str)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\1").encode(errors="replace").decode()
    if isinstance(value, float) and abs(value) >= _LARGE:
        # The decimals of the float itself, not the fewest that stand for it.
        return None if value in (float("inf"), float("-inf")) else int(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _condition(expression: Expression) -> Condition:
    if isinstance(expression, Not):
        condition, values = _condition(expression.part)
        return f"NOT ({condition})", values
    if isinstance(expression, And | Or):
        parts = [_condition(part) for part in expression.parts]
        return _joined(" AND " if isinstance(expression, And) else " OR ", parts)
    column = _Json(expression.field) if expression.field.keys else _Text(expression.field)
    if isinstance(expression, Missing):
        return column.filled("@ IS NULL")
    if isinstance(expression, Like):
        return column.known([column.filled(f"{column.text} LIKE %s", expression.pattern)])
    if isinstance(expression, Ordered):
        return column.known([column.ordered(expression.operator, expression.value)])
    return column.known(list(column.one_of(expression.values)))


def _joined(sign: str, parts: Sequence[Condition]) -> Condition:
    return (
        sign.join(f"({condition})" for condition, _ in parts),
        [value for _, values in parts for value in values],
    )


class _Text:
    """A column of texts; `@` in what is filled in stands for its value, null where there is none."""

    text = '(@) COLLATE "C"'

    def __init__(self, compared: Field) -> None:
        self._value, self._keys = compared.path[0], list(compared.keys)

    def filled(self, template: str, *literals: Any) -> Condition:
        """A condition with the column's value in place of each `@` and a literal for each `%s`."""
        values: list[Any] = []
        left = iter(literals)
        for sign in re.findall("@|%s", template):
            values += self._keys if sign == "@" else [next(left)]
        return template.replace("@", self._value), values

    def known(self, parts: Sequence[Condition]) -> Condition:
        """Disjunction of comparisons: unknown without a value, and false where it is of another kind."""
        whole = _joined(" OR ", parts)
        there, keys = self.filled("(@) IS NOT NULL")
        return f"CASE WHEN {there} THEN coalesce({whole[0]}, false) END", [*keys, *whole[1]]

    def one_of(self, values: Sequence[Literal]) -> Iterator[Condition]:
        """Comparisons with values, one of which is to hold."""
        yield self.filled(f"{self.text} = ANY(%s::text[])", list(values))

    def ordered(self, sign: str, value: Any) -> Condition:
        """Comparison that says whether the value stands before or after another."""
        return self.filled(f"{self.text} {sign} %s::text", value)


class _Json(_Text):
    """A value of metadata."""

    text = "(CASE WHEN jsonb_typeof(@) = 'string' THEN @ #>> '{}' END) COLLATE \"C\""
    _day = f"(CASE WHEN {text} ~ '{_DAY}' THEN substr({text}, 1, 10) END) COLLATE \"C\""
    _number = (
        "CASE WHEN jsonb_typeof(@) = 'number' THEN (@)::numeric "
        f"WHEN {text} ~ '{_WRITTEN_NUMBER}' THEN ({text})::numeric END"
    )

    def __init__(self, compared: Field) -> None:
        super().__init__(compared)
        # By keys as texts, which lead into objects alone.
        self._value = f"NULLIF(metadata{' -> %s::text' * len(self._keys)}, 'null')"

    def one_of(self, values: Sequence[Literal]) -> Iterator[Condition]:
        """See `_Text.one_of`; each kind of value is compared in a way of its own."""
        for value in values:
            if isinstance(value, bool):
                yield self.filled(f"@ = '{json.dumps(value)}'")
            elif isinstance(value, date):
                yield self.filled(f"{self._day} = %s::text", value.isoformat())
            elif isinstance(value, int | float):
                yield self._compared("=", value)
        if texts := [value for value in values if isinstance(value, str)]:
            yield from super().one_of(texts)

    def ordered(self, sign: str, value: Any) -> Condition:
        """See `_Text.ordered`."""
        if isinstance(value, str):
            return super().ordered(sign, value)
        if isinstance(value, date):
            return self.filled(f"{self._day} {sign} %s::text", value.isoformat())
        return self._compared(sign, value)

    def _compared(self, sign: str, value: float) -> Condition:
        number = self._number
        return self.filled(
            f"CASE WHEN abs({number}) >= {_LARGE} THEN {number} {sign} %s::numeric "
            f"ELSE ({number})::float8 {sign} %s::float8 END",
            Decimal(value),
            float(value),
        )
