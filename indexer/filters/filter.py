"""Filter: what was understood of a text, and the rows of Arrow arrays that fulfil it.

Lance reads ids, labels and single values of metadata. Truth has three values, as in SQL: null is unknown.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import Mask
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
    fields_of,
)
from vicinal.indexer.filters.grammar import parse

_Truth = Any
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KERNELS = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
# From here on float64 does not hold all whole numbers.
_LARGE = 2.0**53
_NUMBER = "^-?[0-9]"
# As tables of text write one, and no article number such as 00123.
_WRITTEN_NUMBER = r"^-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?$"
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"


@dataclass(frozen=True)
class Filter:
    """Filter that was understood; filters of one text are equal and always select the same items."""

    text: str
    expression: Expression = field(compare=False)

    @classmethod
    def of(cls, text: str) -> Filter:
        """Understand a filter."""
        return cls(text, parse(text))

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Fields that it compares, each once, by a name of its own."""
        return {f"field {i}": one for i, one in enumerate(dict.fromkeys(fields_of(self.expression)))}

    def columns(self) -> dict[str, str]:
        """Fields that Lance reads, by name of the column: of all that a filter says, only these reach it."""
        return {name: _lance_expression(one) for name, one in self.fields.items()}

    def selects(self, rows: pa.RecordBatch) -> Mask:
        """(n,) whether each of n rows with the columns of `columns` fulfils it."""
        values: dict[Field, _Texts] = {}
        for name, one in self.fields.items():
            texts = rows.column(name).cast(pa.string())
            values[one] = _Json(texts) if one.keys else _Texts(texts)
        return pc.fill_null(_truth(self.expression, values), False).to_numpy(zero_copy_only=False)


def _lance_expression(compared: Field) -> str:
    if not compared.keys:
        return compared.path[0]
    # Quoted as JSON for the path, and then as a text for SQL.
    path = "$" + "".join(f".{json.dumps(key, ensure_ascii=False)}" for key in compared.keys)
    quoted = path.replace("'", "''")
    return f"json_extract(metadata, '{quoted}')"


def _truth(expression: Expression, values: Mapping[Field, _Texts]) -> _Truth:
    if isinstance(expression, Not):
        return pc.invert(_truth(expression.part, values))
    if isinstance(expression, And):
        return reduce(pc.and_kleene, (_truth(part, values) for part in expression.parts))
    if isinstance(expression, Or):
        return reduce(pc.or_kleene, (_truth(part, values) for part in expression.parts))
    column = values[expression.field]
    if isinstance(expression, Missing):
        return pc.is_null(column.present)
    if isinstance(expression, Like):
        return column.known(pc.match_like(column.texts, expression.pattern))
    if isinstance(expression, Ordered):
        return column.known(column.ordered(expression.operator, expression.value))
    return column.known(column.one_of(expression.values))


class _Texts:
    """Values of a column of texts, null where there is none."""

    def __init__(self, present: Any) -> None:
        self.present = present

    @property
    def texts(self) -> Any:
        """(n,) the values that are texts, null elsewhere."""
        return self.present

    def known(self, truth: _Truth) -> _Truth:
        """Truth of a comparison: unknown where there is no value, and false where it is of another kind."""
        there = pc.is_valid(self.present)
        return pc.if_else(there, pc.fill_null(truth, False), pa.scalar(None, pa.bool_()))

    def one_of(self, values: Sequence[Literal]) -> _Truth:
        """Tell whether each value is one of some; nulls where there is none."""
        return pc.is_in(self.texts, value_set=pa.array(values, pa.string()))

    def ordered(self, sign: str, value: Any) -> _Truth:
        """Tell whether each value stands before or after one; null or false for values of another kind."""
        return _KERNELS[sign](self.texts, pa.scalar(value, pa.string()))


class _Json(_Texts):
    """Values of metadata, encoded as JSON, null where there is none."""

    def __init__(self, encoded: Any) -> None:
        super().__init__(pc.if_else(pc.equal(encoded, "null"), pa.scalar(None, pa.string()), encoded))

    @cached_property
    def texts(self) -> Any:
        encoded = self._where(pc.starts_with(self.present, '"'))
        texts = pc.utf8_slice_codeunits(encoded, 1, -1)
        escaped = pc.fill_null(pc.match_substring(texts, "\\"), False)
        return _replaced(texts, escaped, [json.loads(one) for one in encoded.filter(escaped).to_pylist()])

    @cached_property
    def _numbers(self) -> Any:
        """(n,) numbers as JSON, also those that stand as texts; null elsewhere."""
        is_written = pc.fill_null(pc.match_substring_regex(self.texts, _WRITTEN_NUMBER), False)
        numbers = self._where(pc.match_substring_regex(self.present, _NUMBER))
        return pc.if_else(is_written, self.texts, numbers)

    @cached_property
    def _floats(self) -> Any:
        """(n,) float64, both zeros the same one."""
        return pc.add(self._numbers.cast(pa.float64()), 0.0)

    @cached_property
    def _is_large(self) -> Any:
        return pc.fill_null(pc.greater_equal(pc.abs(self._floats), _LARGE), False)

    @cached_property
    def _large(self) -> list[int | float]:
        """The large numbers as what they are."""
        return [json.loads(one) for one in self._numbers.filter(self._is_large).to_pylist()]

    @cached_property
    def _days(self) -> Any:
        """(n,) the days that texts begin with, null elsewhere."""
        is_day = pc.match_substring_regex(self.texts, _DAY)
        return pc.utf8_slice_codeunits(pc.if_else(is_day, self.texts, pa.scalar(None, pa.string())), 0, 10)

    def _where(self, is_kind: Any) -> Any:
        return pc.if_else(is_kind, self.present, pa.scalar(None, pa.string()))

    def one_of(self, values: Sequence[Literal]) -> _Truth:
        found = []
        if texts := [one for one in values if isinstance(one, str)]:
            found.append(super().one_of(texts))
        if days := [one.isoformat() for one in values if isinstance(one, date)]:
            found.append(pc.is_in(self._days, value_set=pa.array(days)))
        if bools := [json.dumps(one) for one in values if isinstance(one, bool)]:
            found.append(pc.is_in(self.present, value_set=pa.array(bools)))
        if numbers := {one for one in values if isinstance(one, int | float) and not isinstance(one, bool)}:
            exact = [float(one) + 0.0 for one in numbers if one == float(one)]
            near = pc.is_in(self._floats, value_set=pa.array(exact, pa.float64()))
            found.append(self._with_exact(near, lambda one: one in numbers))
        return reduce(pc.or_, found)

    def ordered(self, sign: str, value: Any) -> _Truth:
        if isinstance(value, str):
            return super().ordered(sign, value)
        if isinstance(value, date):
            return _KERNELS[sign](self._days, value.isoformat())
        near = _KERNELS[sign](self._floats, float(value))
        return self._with_exact(near, lambda one: _OPERATORS[sign](one, value))

    def _with_exact(self, near: _Truth, is_true: Callable[[int | float], bool]) -> _Truth:
        """A comparison of float64 numbers, the large ones compared as what they are."""
        return _replaced(near, self._is_large, [is_true(one) for one in self._large])


def _replaced(values: Any, where: Any, others: list[Any]) -> Any:
    return pc.replace_with_mask(values, where, pa.array(others, values.type)) if others else values
