"""An engine in memory that compares all rows: what the real ones are held to, and failures on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines import Engines, EngineTable
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
        self.asked: list[tuple[int, int]] = []

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        self.tables[name] = np.array(vectors), items
        on_progress("index", len(vectors), len(vectors))

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        if self.failures:
            raise self.failures.pop(0)
        if name not in self.tables:
            raise EngineTableError(f"table {name} is gone")
        vectors, items = self.tables[name]
        self.asked.append((n, looked_at))
        order = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")
        found = np.full((len(queries), n), -1, np.int64)
        if filter is not None:
            columns = {"id": items["id"].combine_chunks(), "label": items["label"].combine_chunks()}
            rows = {name: columns[expression] for name, expression in filter.columns().items()}
            selected = filter.selects(pa.RecordBatch.from_pydict(rows))
        for place, row in enumerate(order):
            seen = row[: int(min(len(row), self.sees * looked_at))]
            there = seen if filter is None else seen[selected[seen]]
            found[place, : len(there[:n])] = there[:n]
        return found

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        return self.tables[name][0][positions]

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.tables if name.startswith(prefix))

    def drop(self, name: str) -> None:
        self.tables.pop(name, None)

    def describe(self, name: str | None = None) -> EngineTable:
        if name is not None and name not in self.tables:
            raise EngineTableError(f"table {name} is gone")
        return EngineTable("exact", n_rows=None if name is None else len(self.tables[name][0]))

    def close(self) -> None:
        pass


@contextmanager
def engines_with(engine: ExactEngine, **options: object) -> Iterator[Engines]:
    """Engines of which the one called postgres is another."""
    engines = Engines({"postgres": "secret"}, **options)  # type: ignore[arg-type]
    engines._opened["postgres"] = engine
    yield engines
    engines.close()
