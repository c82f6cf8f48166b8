"""Engine: what is asked of a program that finds candidates, and the engines of this process.

A version and space is one table of an engine, written once and never updated. Where an engine is, only the
settings say: no file of a gallery, no error and no log line holds an address or a part of one.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.sources.team_table import TableMark, TeamTable
from vicinal.models.progress import OnProgress

logger = logging.getLogger(__name__)

Look = TypeVar("Look")

# What people call engines, by the option `index`: module `postgres` has the class `PostgresEngine`.
ENGINES = {"postgres": "PostgreSQL", "milvus": "Milvus"}
_RETRY_SECONDS = 5.0
_LEAST_SECONDS = 0.05
# An index may come, and columns may change, while a gallery is open.
_LOOK_SECONDS = 60.0
# One slow search can lie with its filter; several in a row lie with the engine.
_SLOW_IN_A_ROW = 3


@dataclass(frozen=True)
class EngineTable:
    """Versions of an engine's server and vector extension, and the size of a table."""

    server: str
    extension: str = ""
    n_rows: int | None = None
    n_bytes: int | None = None


@dataclass(frozen=True)
class TeamRows:
    """Rows of a team's table: ids as the gallery has them but for its prefix, (n, d) float32 vectors of any
    length, and the values of all other columns, in the order of the reader's `schema`.
    """

    ids: Sequence[str]
    vectors: FloatArray
    values: Sequence[Sequence[Any]]


class TeamReader(Protocol):
    """Reader of a team's table; it writes nothing there, and is used by any number of threads.

    Its errors are those of `Engine`; `EngineTableError` where the table, a column or the right to read went.
    """

    @property
    def schema(self) -> pa.Schema:
        """Columns beside the embedding, as a source of this table gives them."""

    @property
    def searched_by(self) -> str:
        """The index that finds candidates, in words; empty where all rows are compared."""

    @property
    def remarks(self) -> list[str]:
        """Sentences on what makes searches of this table slow."""

    @property
    def most_looked_at(self) -> int:
        """Most rows that a search may be told to look at."""

    def search(
        self, queries: FloatArray, n: int, looked_at: int, among: Sequence[str] | None = None
    ) -> list[TeamRows]:
        """The n rows nearest to each of (B, d) queries; among some ids, at most 20,000, by comparing all."""

    def fetch(self, ids: Sequence[str]) -> TeamRows:
        """The rows of some ids that are there, in any order."""

    def mark(self) -> TableMark:
        """State of the table, as cheaply as it can be had."""


class LookingReader(Generic[Look]):
    """Reader that looks once a minute at how its table is made."""

    _known: tuple[float, Look] | None = None

    @property
    def _look(self) -> Look:
        known = self._known
        if known is None or time.monotonic() - known[0] > _LOOK_SECONDS:
            known = self._known = time.monotonic(), self._looked()
        return known[1]

    def _looked(self) -> Look:
        """Ask how the table is made."""
        raise NotImplementedError


class Engine(Protocol):
    """Engine at one address, which its constructor takes and does not connect to; for any number of threads.

    Every method raises `EngineAwayError` for what may pass (no connection, a dropped one, too slow),
    `EngineFullError` where there is no room, `EngineTableError` where a table is gone or not what was built,
    and `EngineError` for what a person has to mend (password, version, extension). Names have at most 63 of
    the characters a-z, 0-9 and _.
    """

    # What a search may be told to look at, and the longest vectors.
    most_looked_at: int
    longest: int

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        """Make a table of (n, d) float32 vectors, L2-normalized, and of `id`, `label`, `uri` and `metadata`
        (texts, the last one JSON) of their items, with an index; its rows are named by their positions.
        """

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the rows nearest to (B, d) queries by inner product, nearest first, of those
        that a filter selects, -1 where fewer were found; `looked_at` is how many the graph keeps in sight,
        and is cut to the most that the engine can.
        """

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        """(n, d) vectors of rows as they were given, bit for bit."""

    def names(self, prefix: str) -> list[str]:
        """Tables whose names begin so, sorted."""

    def drop(self, name: str) -> None:
        """Remove a table; nothing where there is none."""

    def describe(self, name: str | None = None) -> EngineTable:
        """Tell versions, and of a table its size."""

    def over(self, table: TeamTable) -> TeamReader:
        """Reader of a team's table; nothing is asked yet."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True)
class EngineState:
    """State of an engine; `problem` says why it is left alone, None while it is asked."""

    engine: str
    problem: str | None = None
    n_failures: int = 0


class Engines:
    """Engines of a process by name, made of their addresses when first asked.

    After a failure an engine is left alone for `retry_seconds`: whoever asks meanwhile gets the same error at
    once, and then one question finds out for all.
    """

    def __init__(
        self,
        addresses: Mapping[str, str] | None = None,
        *,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses = dict(addresses or {})
        self._retry_seconds, self._clock = retry_seconds, clock
        self._lock = threading.Lock()
        self._opened: dict[str, Engine] = {}
        self._circuits: dict[str, _Circuit] = {}
        # Tables that nothing needs, which their engine did not let go.
        self._left: list[tuple[str, str]] = []

    @property
    def states(self) -> list[EngineState]:
        """State of each engine that has an address, as the last question showed it."""
        circuits = dict(self._circuits)
        return [circuits[name].state(name) if name in circuits else EngineState(name) for name in self.names]

    def look(self, name: str) -> str | None:
        """Ask an engine whether it answers, unless it failed a moment ago; the reason why not."""
        try:
            with self.asking(name) as engine:
                engine.describe()
        except EngineError as error:
            return str(error)
        return None

    @property
    def names(self) -> list[str]:
        """Engines that have an address, sorted."""
        return sorted(self._addresses)

    @contextmanager
    def asking(self, name: str) -> Iterator[Engine]:
        """Give an engine for one question, unless it failed a moment ago."""
        engine, circuit = self._of(name)
        circuit.enter()
        try:
            yield engine
        except (EngineTableError, EngineFullError):
            circuit.note_answer()
            raise
        except EngineError as error:
            circuit.note_failure(error)
            raise
        circuit.note_answer()

    def drop(self, kind: str, name: str) -> None:
        """Remove a table that nothing needs; where its engine does not let it go, as soon as it does."""
        try:
            with self.asking(kind) as engine:
                engine.drop(name)
        except EngineError as error:
            logger.warning("table %s stays for now: %s", name, error)
            with self._lock:
                self._left.append((kind, name))
                if len(self._left) > 1:
                    return
            threading.Thread(target=self._drop_left, name="tables of engines", daemon=True).start()

    @contextmanager
    def reading(self, table: TeamTable) -> Iterator[TeamReader]:
        """Give the reader of a team's table for one question; see `asking`."""
        with self.asking(table.engine) as engine:
            yield engine.over(table)

    def close(self) -> None:
        """Close all connections; whoever asks again opens new ones."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for engine in opened.values():
            engine.close()

    def _drop_left(self) -> None:
        while True:
            time.sleep(max(self._retry_seconds, _LEAST_SECONDS))
            for kind, name in list(self._left):
                with suppress(EngineError):
                    with self.asking(kind) as engine:
                        engine.drop(name)
                    with self._lock:
                        self._left.remove((kind, name))
                        if not self._left:
                            return

    def _of(self, name: str) -> tuple[Engine, _Circuit]:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._open(name)
            if name not in self._circuits:
                self._circuits[name] = _Circuit(ENGINES[name], self._retry_seconds, self._clock)
            return self._opened[name], self._circuits[name]

    def _open(self, name: str) -> Engine:
        called, module = ENGINES[name], f"vicinal.indexer.engines.{name}"
        if name not in self._addresses:
            raise EngineError(f"{called} is needed here and has no address: set VICINAL_{name.upper()}_URL")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise EngineError(f"this release does not search on {called}: take another index") from error
        engine: Engine = getattr(found, f"{name.title()}Engine")(self._addresses[name])
        return engine


class _Circuit:
    """Circuit breaker of an engine."""

    def __init__(self, called: str, retry_seconds: float, clock: Callable[[], float]) -> None:
        self.failure: EngineError | None = None
        self._called, self._retry_seconds, self._clock = called, retry_seconds, clock
        self._lock = threading.Lock()
        self._retry_at = 0.0
        self._n_slow = self._n_failures = 0

    def state(self, name: str) -> EngineState:
        """State for people, of the engine of a name."""
        with self._lock:
            failure = self.failure
            return EngineState(name, None if failure is None else str(failure), self._n_failures)

    def enter(self) -> None:
        """Let one question through; raises the failure again while its seconds are not over."""
        with self._lock:
            if self.failure is None:
                return
            now = self._clock()
            if now < self._retry_at:
                raise type(self.failure)(str(self.failure)) from None
            self._retry_at = now + self._retry_seconds

    def note_failure(self, error: EngineError) -> None:
        """Open the circuit, after the third slow answer in a row or at once."""
        with self._lock:
            self._n_slow = (
                self._n_slow + 1 if isinstance(error, EngineAwayError) and error.is_slow else _SLOW_IN_A_ROW
            )
            if self.failure is None and self._n_slow < _SLOW_IN_A_ROW:
                return
            is_new, self.failure = self.failure is None, error
            self._retry_at = self._clock() + self._retry_seconds
        if is_new:
            logger.error("%s; trying again every %g s", error, self._retry_seconds)

    def note_answer(self) -> None:
        """Close the circuit."""
        with self._lock:
            was_away, self.failure, self._n_slow = self.failure is not None, None, 0
        if was_away:
            logger.warning("%s answers again", self._called)
