"""Tree of what a filter says.

A comparison with a field that an item lacks, or that is null, is unknown: neither it nor its NOT selects the
item, as in SQL. A value that is there but of another kind (a text where a number is named) fulfils none;
a text that is a plain decimal number, such as `12.50`, is also of the kind of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

# A date is compared with the day that a text of metadata begins with, as it is written there.
Literal: TypeAlias = str | int | float | bool | date


@dataclass(frozen=True)
class Field:
    """Field that is compared: `("id",)`, `("label",)`, or `metadata` and the keys that lead to a value."""

    path: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys inside of the metadata; none for `id` and `label`."""
        return self.path[1:]


@dataclass(frozen=True)
class OneOf:
    """The field has one of some values: `=` and `IN`."""

    field: Field
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Ordered:
    """The field stands before or after a value: `<`, `<=`, `>` or `>=`."""

    field: Field
    operator: str
    value: Literal


@dataclass(frozen=True)
class Like:
    """The field is a text of a form: `%` for any characters, `_` for one, a backslash before a sign."""

    field: Field
    pattern: str


@dataclass(frozen=True)
class Missing:
    """The field is not there, or null."""

    field: Field


@dataclass(frozen=True)
class Not:
    """The opposite; of what is unknown it is unknown."""

    part: Expression


@dataclass(frozen=True)
class And:
    """All of them."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Or:
    """At least one of them."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = OneOf | Ordered | Like | Missing | Not | And | Or


def fields_of(expression: Expression) -> Iterator[Field]:
    """Fields that an expression compares, some of them several times."""
    if isinstance(expression, Not):
        yield from fields_of(expression.part)
    elif isinstance(expression, And | Or):
        for part in expression.parts:
            yield from fields_of(part)
    else:
        yield expression.field
