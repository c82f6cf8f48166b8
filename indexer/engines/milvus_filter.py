"""Filters as expressions of Milvus, which hold for every row that a filter selects, and for some others.

Candidates are compared with the exact selection afterwards, so more rows cost time and change no answer.
Milvus 2.3 has no nulls, knows a text by its beginning alone, and counts no text as a number. So these hold
for more rows than they should, or for all:

LIKE                    what stands before the first wildcard or escaped sign; all rows where nothing does
numbers                 texts that begin with a sign or a digit, because they may be written numbers
numbers beyond 2^53     all rows
DATE                    texts that stand in that place, dates or not
label IS NULL           an empty label, which is what stands for none; `id` is never null
metadata.x IS NULL, NOT of LIKE, and of comparisons with metadata: all rows
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import date
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
    OneOf,
    Or,
    Ordered,
)

_OPPOSITES = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# Written numbers begin with a sign or a digit, and all texts that do stand between these two.
_FIRST, _AFTER = "-", ":"
_LARGE = 2**53
# After a day, a text ends or goes on with a space or a T.
_LATER = "U"


def compiled(filter: Filter) -> str:
    """Expression of a filter; empty where it would hold for all rows."""
    return _holding(filter.expression, True) or ""


def stored(metadata: str | None) -> Any:
    """Metadata as Milvus takes them: numbers that it has no room for become the largest, which stand in the
    same place of every comparison that is sent, and halves of surrogate pairs a question mark.
    """
    text = metadata or "{}"
    value = json.loads(text, parse_int=_integer, parse_float=_float)
    if "\\ud" in text.lower():
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _integer(digits: str) -> int:
    # Beyond some thousand digits Python reads none, and all that counts are more than twenty.
    return min(max(int(digits[:32]), -(2**63)), 2**63 - 1)


def _float(digits: str) -> float:
    return min(max(float(digits), -sys.float_info.max), sys.float_info.max)


def _holding(expression: Expression, truth: bool) -> str | None:
    """Expression of Milvus for all rows for which one of ours is true, or is false; None for all rows."""
    if isinstance(expression, Not):
        return _holding(expression.part, not truth)
    if isinstance(expression, And | Or):
        parts = [_holding(part, truth) for part in expression.parts]
        if isinstance(expression, And) == truth:
            return _joined("and", [part for part in parts if part is not None])
        return None if None in parts else _joined("or", [part for part in parts if part is not None])
    name = _name(expression.field)
    if name is None:
        return None
    if isinstance(expression, Missing):
        if expression.field.keys:
            return None if truth else f"(exists {name})"
        return f'{name} == ""' if truth else None
    if truth:
        return _true(expression, name)
    # Of metadata, what is of another kind is false too, and NOT means something else in every release.
    return None if expression.field.keys else _false(expression, name)


def _true(expression: OneOf | Ordered | Like, name: str) -> str | None:
    if isinstance(expression, Like):
        before = re.split(r"[%_\\]", expression.pattern, maxsplit=1)[0]
        return f"{name} like {_quoted(before + '%')}" if before else None
    if isinstance(expression, OneOf):
        return _one_of(name, expression.values)
    value, sign = expression.value, expression.operator
    if isinstance(value, str):
        return f"{name} {sign} {_quoted(value)}"
    if isinstance(value, date):
        return _of_day(name, sign, value)
    compared = [f"{name} {sign} {float(value)!r}", _begins_as_number(name)]
    return _joined("or", compared) if _fits(value) else None


def _false(expression: OneOf | Ordered | Like, name: str) -> str | None:
    if isinstance(expression, Like):
        return None
    if isinstance(expression, OneOf):
        return f"not ({name} in [{', '.join(_quoted(str(one)) for one in expression.values)}])"
    return f"{name} {_OPPOSITES[expression.operator]} {_quoted(str(expression.value))}"


def _one_of(name: str, values: tuple[Literal, ...]) -> str | None:
    """Lists of one kind each: Milvus refuses mixed ones, also of 1 and 1.0."""
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if not all(map(_fits, numbers)):
        return None
    kinds: list[tuple[Callable[[Literal], str], list[Literal]]] = [
        (lambda one: _quoted(str(one)), [one for one in values if isinstance(one, str)]),
        (json.dumps, [one for one in values if isinstance(one, bool)]),
        (lambda one: repr(float(str(one))), [*numbers]),
    ]
    parts = [f"{name} in [{', '.join(map(write, ones))}]" for write, ones in kinds if ones]
    parts += [_begins_as_number(name)] if numbers else []
    parts += [_of_day(name, "=", one) for one in values if isinstance(one, date)]
    return _joined("or", parts)


def _of_day(name: str, sign: str, day: date) -> str:
    first, after = _quoted(day.isoformat()), _quoted(day.isoformat() + _LATER)
    later = f"{name} >= {after if sign == '>' else first}"
    earlier = f"{name} < {first if sign == '<' else after}"
    return {"=": f"({later} and {earlier})", ">": later, ">=": later}.get(sign, earlier)


def _begins_as_number(name: str) -> str:
    return f"({name} >= {_quoted(_FIRST)} and {name} < {_quoted(_AFTER)})"


def _fits(value: float) -> bool:
    return abs(value) <= _LARGE


def _name(field: Field) -> str | None:
    """Name of a field in an expression; None where Milvus has none for it."""
    return field.path[0] + "".join(f"[{_quoted(key)}]" for key in field.keys) if all(field.path) else None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _joined(word: str, parts: list[str]) -> str | None:
    return f"({f' {word} '.join(parts)})" if len(parts) > 1 else parts[0] if parts else None
