from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from vicinal.calibration.arrays import Mask
from vicinal.indexer.filters.evaluation import evaluate, lance_columns
from vicinal.indexer.filters.expressions import Expression, Field, fields_of
from vicinal.indexer.filters.grammar import parse


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
    def fields(self) -> tuple[Field, ...]:
        """Fields that it compares, each once."""
        return tuple(dict.fromkeys(fields_of(self.expression)))

    def columns(self) -> dict[str, str]:
        """Fields that Lance reads, by name of the column: of all that a filter says, only these reach it."""
        return lance_columns(self.fields)

    def selects(self, rows: pa.RecordBatch) -> Mask:
        """(n,) whether each of n rows with the columns of `columns` fulfils it."""
        return evaluate(self.expression, self.fields, rows)
