"""An engine in memory that compares all rows: what the real ones are held to, and failures on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines import Engine
from vicinal.indexer.engines.milvus import EngineTable
from vicinal.indexer.errors import EngineError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.models.progress import OnProgress

Rows = tuple[FloatArray, pa.Table]


class ExactEngine:
    """Finds the nearest rows exactly, of those among the first `sees` times what it is told to look at."""

    most_looked_at = 1000
    longest = 2000

    def __init__(self, sees: float = np.inf) -> None:
        self.sees = sees
        self.tables: dict[str, Rows] = {}
        self.failures: list[EngineError] = []
        # What every question gets while it is set.
        self.away: EngineError | None = None
        self.asked: list[tuple[int, int]] = []

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        self._fail()
        self.tables[name] = np.array(vectors), items
        on_progress("index", len(vectors), len(vectors))

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        self._fail()
        if name not in self.tables:
            raise EngineTableError(f"table {name} is gone")
        vectors, items = self.tables[name]
        self.asked.append((n, looked_at))
        order = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")
        found = np.full((len(queries), n), -1, np.int64)
        selected = np.ones(len(vectors), bool)
        # By metadata it selects more than it should, as an engine may.
        read = {} if filter is None else filter.columns()
        if filter is not None and set(read.values()) <= {"id", "label"}:
            rows = {name: items[column].combine_chunks() for name, column in read.items()}
            selected = filter.selects(pa.RecordBatch.from_pydict(rows))
        for place, row in enumerate(order):
            seen = row[: int(min(len(row), self.sees * looked_at))]
            there = seen[selected[seen]]
            found[place, : len(there[:n])] = there[:n]
        return found

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        return self.tables[name][0][positions]

    def names(self, prefix: str) -> list[str]:
        self._fail()
        return sorted(name for name in self.tables if name.startswith(prefix))

    def drop(self, name: str) -> None:
        self._fail()
        self.tables.pop(name, None)

    def describe(self, name: str | None = None) -> EngineTable:
        self._fail()
        if name is not None and name not in self.tables:
            raise EngineTableError(f"table {name} is gone")
        return EngineTable("exact", n_rows=None if name is None else len(self.tables[name][0]))

    def close(self) -> None:
        pass

    def _fail(self) -> None:
        if self.away is not None:
            raise self.away
        if self.failures:
            raise self.failures.pop(0)


@contextmanager
def engine_of(found: ExactEngine, **options: object) -> Iterator[Engine]:
    """The engine of a process, which is another one than Milvus."""
    engine = Engine("secret", **options)  # type: ignore[arg-type]
    engine._opened = found  # type: ignore[assignment]
    yield engine
    engine.close()
