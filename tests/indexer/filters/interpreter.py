"""What a filter selects, read off its expression item by item: slow and obvious."""

from __future__ import annotations

import json
import operator
import re
from datetime import date
from typing import Any

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
)

_PLAIN_NUMBER = r"-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?"
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(expression: Expression, item: dict[str, Any]) -> bool | None:
    """Whether an item fulfils an expression; None where that is unknown."""
    match expression:
        case Not():
            truth = holds(expression.part, item)
            return None if truth is None else not truth
        case And():
            truths = [holds(part, item) for part in expression.parts]
            return False if False in truths else None if None in truths else True
        case Or():
            truths = [holds(part, item) for part in expression.parts]
            return True if True in truths else None if None in truths else False
    value = value_of(expression.field, item)
    if isinstance(expression, Missing):
        return value is None
    if value is None:
        return None
    if isinstance(expression, Like):
        return isinstance(value, str) and bool(re.fullmatch(_as_regex(expression.pattern), value, re.DOTALL))
    if isinstance(expression, OneOf):
        return any(_compare("==", value, one) for one in expression.values)
    return _compare(expression.operator, value, expression.value)


def value_of(field: Field, item: dict[str, Any]) -> Any:
    value: Any = item
    for key in field.path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _compare(sign: str, value: Any, literal: Literal) -> bool:
    if isinstance(literal, date):
        if not isinstance(value, str) or not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|\Z)", value):
            return False
        value, literal = value[:10], literal.isoformat()
    if _kind(literal) is float and isinstance(value, str) and re.fullmatch(_PLAIN_NUMBER, value):
        value = json.loads(value)
    if _kind(value) != _kind(literal):
        return False
    return bool((_SIGNS | {"==": operator.eq})[sign](value, literal))


def _kind(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _as_regex(pattern: str) -> str:
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return "".join(re.escape(one[1]) if len(one) == 2 else signs.get(one, re.escape(one)) for one in tokens)
