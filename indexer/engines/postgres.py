"""PostgreSQL with pgvector: a table and an HNSW graph for each version and space.

CREATE TABLE vicinal_<owner>_<version>_<space>_<time>_<random> (
  position integer PRIMARY KEY, id text, label text, metadata jsonb, embedding vector(d))

See https://github.com/pgvector/pgvector for the graph and its settings, `postgres_filter` for filters.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines.engine import EngineTable
from vicinal.indexer.engines.postgres_filter import compiled, stored
from vicinal.indexer.engines.postgres_team import (
    GRACE_SECONDS,
    MOST_IN_GRAPH,
    SEARCH_SECONDS,
    Answer,
    Failures,
    PostgresReader,
    graph_settings,
    local_settings,
)
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.sources.engine_tables.postgres import import_psycopg, vector_loader
from vicinal.indexer.sources.team_table import TeamTable
from vicinal.models.progress import OnProgress

_SETTING = "VICINAL_POSTGRES_URL"
# Iterative scans came with it, without which a filter leaves fewer than were asked for.
_EXTENSION, _SERVER = (0, 8, 0), 130_000
_CONNECT_SECONDS = 5
# Counting rows takes longer than a search.
_LONG_SECONDS = 60.0
# A dead network is noticed within some ten seconds.
_LIVELINESS = {
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_MOST_IDLE = 16
# Of the graph, see docs/SCALE.md.
_EDGES, _LOOKED_AT_TO_BUILD = 16, 128
# A graph is built several times faster in memory; what is beyond this the server's own setting gives.
_MOST_BUILD_BYTES, _EDGE_BYTES = 2**30, 720

_SLOW = "PostgreSQL did not answer in time"
_NO_ADDRESS = (
    f"{_SETTING} is no address of PostgreSQL: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with @ "
    "and / of a password as %40 and %2F"
)
_LOST = "PostgreSQL does not answer, or broke off the connection"
# By the beginning of the state that PostgreSQL gives an error; its own words may tell of rows and addresses.
_FAILURES: Failures = (
    # What libpq does not even try to connect to; no server gives it.
    ("address", EngineError, _NO_ADDRESS),
    ("28", EngineError, f"PostgreSQL refuses the user or the password of {_SETTING}"),
    ("3D000", EngineError, f"PostgreSQL has no database of the name that {_SETTING} gives"),
    (
        "42501",
        EngineError,
        f"PostgreSQL does not let the user of {_SETTING} do that: grant it CREATE on its schema",
    ),
    ("25006", EngineError, f"PostgreSQL takes no changes: {_SETTING} names a server that is read-only"),
    ("42P01", EngineTableError, "PostgreSQL does not have the table of this version"),
    ("XX00", EngineTableError, "PostgreSQL finds the table of this version damaged"),
    ("57014", EngineAwayError, _SLOW),
    ("55P03", EngineAwayError, "PostgreSQL is using a table that is to go"),
    ("53100", EngineFullError, "the disk of PostgreSQL is full"),
    ("53300", EngineAwayError, "PostgreSQL takes no more connections"),
    ("53", EngineAwayError, "PostgreSQL has no memory left"),
    ("57P", EngineAwayError, "PostgreSQL is starting, stopping or mending itself"),
    ("58", EngineAwayError, "the disk of PostgreSQL fails"),
    ("08", EngineAwayError, _LOST),
)
# Who is refused a connection gets no state.
_REFUSALS = (
    (r"invalid .*(value|port|option|URI)", "address"),
    (r"authentication failed|password supplied|pg_hba|role .* does not exist", "28000"),
    (r"database .* does not exist", "3D000"),
    (r"too many (clients|connections)|connection slots", "53300"),
    (r"(starting up|shutting down|recovery mode|not yet accepting)", "57P03"),
)


class PostgresEngine:
    """PostgreSQL at an address as libpq takes it, see `Engine`. It opens connections when it needs them, in
    the thread that does, so that each gets its own reason why it cannot, and keeps some for later.
    """

    most_looked_at = MOST_IN_GRAPH
    longest = 2000

    def __init__(self, address: str) -> None:
        self._psycopg = import_psycopg("searching on PostgreSQL")
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        # Of an engine that nobody closes, as that of a command.
        weakref.finalize(self, _close, self._idle)
        self._readers: dict[str, PostgresReader] = {}

    def over(self, table: TeamTable) -> PostgresReader:
        """Reader of a team's table; see `Engine.over`."""
        return self._readers.setdefault(table.model_dump_json(), PostgresReader(self, table))

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        """Make a table in one transaction, so that who breaks off leaves nothing; see `Engine.build`."""
        n, dim = vectors.shape
        table, memory = _quoted(name), min(_MOST_BUILD_BYTES, n * (4 * dim + _EDGE_BYTES))
        columns = f"position integer, id text, label text, metadata jsonb, embedding vector({dim})"

        def make(connection: Any) -> None:
            with connection.transaction():
                # What the role is allowed for its searches would end it.
                connection.execute(*local_settings({"statement_timeout": 0}))
                connection.execute(f"CREATE TABLE {table} ({columns})")
                connection.execute(f"COMMENT ON TABLE {table} IS 'made by Vicinal, never updated'")
                self._copy(connection, table, vectors, items, on_progress)
                connection.execute(
                    "SELECT set_config('maintenance_work_mem', greatest(%s::bigint, pg_size_bytes("
                    "current_setting('maintenance_work_mem'))) / 1024 || 'kB', true)",
                    [memory],
                )
                connection.execute(
                    f"CREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops) "
                    f"WITH (m = {_EDGES}, ef_construction = {_LOOKED_AT_TO_BUILD})"
                )
                connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (position)")
                connection.execute(f"ANALYZE {table}")

        self.ask(make, seconds=None, is_change=True)

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest rows; see `Engine.search`."""
        condition, values = compiled(filter)
        statement = (
            f"WITH found AS MATERIALIZED (SELECT position, embedding <#> %s AS far FROM {_quoted(name)} "
            f"WHERE {condition} ORDER BY far LIMIT {int(n)}) SELECT position FROM found ORDER BY far"
        )
        settings = {
            **graph_settings(looked_at, n),
            "enable_seqscan": "off",
            "jit": "off",
            "statement_timeout": int(1000 * SEARCH_SECONDS),
        }

        def find(connection: Any) -> Ints:
            rows = np.full((len(queries), n), -1, np.int64)
            with connection.pipeline(), connection.transaction():
                connection.execute(*local_settings(settings))
                found = [connection.execute(statement, [one, *values], binary=True) for one in queries]
                for row, cursor in zip(rows, found, strict=True):
                    positions = [position for (position,) in cursor.fetchall()]
                    row[: len(positions)] = positions
            return rows

        return self.ask(find, seconds=SEARCH_SECONDS + GRACE_SECONDS)

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        """(n, d) vectors of rows; see `Engine.fetch`."""
        statement = f"SELECT position, embedding FROM {_quoted(name)} WHERE position = ANY(%s)"

        def read(connection: Any) -> dict[int, FloatArray]:
            return dict(connection.execute(statement, [positions.tolist()], binary=True).fetchall())

        rows = self.ask(read)
        if not set(positions.tolist()) <= rows.keys():
            raise EngineTableError("PostgreSQL does not have all rows of the table of this version")
        return np.stack([rows[position] for position in positions.tolist()])

    def names(self, prefix: str) -> list[str]:
        """Tables whose names begin so, sorted."""
        statement = (
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s) "
            "AND pg_table_is_visible(oid) ORDER BY 1"
        )
        return self.ask(lambda connection: [row[0] for row in connection.execute(statement, [prefix])])

    def drop(self, name: str) -> None:
        """Remove a table; nothing where there is none."""

        def remove(connection: Any) -> None:
            with connection.transaction():
                connection.execute(*local_settings({"lock_timeout": int(1000 * SEARCH_SECONDS)}))
                connection.execute(f"DROP TABLE IF EXISTS {_quoted(name)}")

        self.ask(remove, is_change=True)

    def describe(self, name: str | None = None) -> EngineTable:
        """Tell versions, and of a table its size."""

        def look(connection: Any) -> EngineTable:
            version = connection.info.server_version
            server = f"PostgreSQL {version // 10_000}.{version % 10_000}"
            extension = "pgvector " + ".".join(map(str, _extension_version(connection)))
            if name is None:
                return EngineTable(server, extension)
            size = f"SELECT count(*), pg_total_relation_size('{_quoted(name)}') FROM {_quoted(name)}"
            return EngineTable(server, extension, *connection.execute(size).fetchone())

        return self.ask(look, seconds=SEARCH_SECONDS if name is None else _LONG_SECONDS)

    def close(self) -> None:
        """Close connections that are not in use."""
        with self._lock:
            _close(self._idle)

    def _copy(
        self, connection: Any, table: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress
    ) -> None:
        n = len(vectors)
        statement = f"COPY {table} (position, id, label, metadata, embedding) FROM STDIN (FORMAT BINARY)"
        columns = items.select(["id", "label", "metadata"])
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int4", "text", "text", "jsonb", "vector"])
            position = 0
            for batch in columns.to_batches(max_chunksize=4096):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row((position, *stored(*row), vectors[position]))
                    position += 1
                on_progress("publish", position, n)

    def ask(
        self,
        question: Callable[[Any], Answer],
        *,
        seconds: float | None = _LONG_SECONDS,
        is_change: bool = False,
        failures: Failures = (),
    ) -> Answer:
        """Ask a connection, once more where a kept one has gone; `failures` say first what is wrong."""
        kept = None if is_change else self._kept()
        if kept is not None:
            try:
                return self._asked(kept, question, seconds, failures)
            except _GoneError:
                # The others are of the same age.
                self.close()
        try:
            return self._asked(self._opened(), question, seconds, failures)
        except _GoneError:
            raise EngineAwayError(_LOST) from None

    def _asked(
        self,
        connection: Any,
        question: Callable[[Any], Answer],
        seconds: float | None,
        failures: Failures,
    ) -> Answer:
        watch = _Watch(connection, seconds)
        try:
            with watch:
                answer = question(connection)
        except self._psycopg.Error as error:
            connection.close()
            if watch.is_over:
                raise EngineAwayError(_SLOW, is_slow=True) from None
            if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
                raise _GoneError from None
            # Without the error itself, which may tell of address and rows wherever it is logged.
            raise _told(error.sqlstate, failures) from None
        except BaseException:
            connection.close()
            raise
        with self._lock:
            is_kept = len(self._idle) < _MOST_IDLE
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        return answer

    def _kept(self) -> Any:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _opened(self) -> Any:
        psycopg = self._psycopg
        try:
            given = psycopg.conninfo.conninfo_to_dict(self._address)
        except psycopg.Error:
            given = {}
        # A password that is not written as an address takes it ends up in the name of the host.
        if not given or "@" in str(given.get("host", "")):
            raise EngineError(_NO_ADDRESS)
        options = {"connect_timeout": _CONNECT_SECONDS, "application_name": "vicinal", **_LIVELINESS, **given}
        try:
            # Prepared statements would outlive a transaction, which poolers between may not.
            connection = psycopg.connect(**options, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise _refused(error.sqlstate, str(error)) from None
        try:
            self._prepare(connection)
        except psycopg.Error as error:
            connection.close()
            raise _told(error.sqlstate) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Any) -> None:
        version = connection.info.server_version
        if version < _SERVER:
            raise EngineError(
                f"PostgreSQL is of version {version // 10_000}, {_SERVER // 10_000} or later is needed"
            )
        vector = self._psycopg.types.TypeInfo.fetch(connection, "vector")
        found = _extension_version(connection)
        if vector is None or not found:
            raise EngineError(
                f"PostgreSQL lacks pgvector in the database of {_SETTING}: install it, and run "
                "CREATE EXTENSION vector there"
            )
        if found < _EXTENSION:
            has, needs = (".".join(map(str, one)) for one in (found, _EXTENSION))
            raise EngineError(
                f"PostgreSQL has pgvector {has}, {needs} or later is needed: ALTER EXTENSION vector UPDATE"
            )
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise EngineError(f"the database of {_SETTING} is encoded as {encoding}, UTF8 is needed")
        vector.register(connection)
        _register_vectors(self._psycopg, connection, vector.oid)


class _GoneError(Exception):
    """A connection was lost before it answered."""


class _Watch:
    """Breaks a connection whose server does not keep its own limit, as one that hangs."""

    def __init__(self, connection: Any, seconds: float | None) -> None:
        self._connection = connection
        self._timer = None if seconds is None else threading.Timer(seconds, self._end)
        self.is_over = False

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        # A connection that is closed by now has no number any more.
        with suppress(Exception), socket.socket(fileno=os.dup(self._connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def _close(idle: list[Any]) -> None:
    while idle:
        idle.pop().close()


def _quoted(name: str) -> str:
    """A table's name in SQL."""
    if not re.fullmatch("[a-z0-9_]{1,63}", name):
        raise EngineError(f"'{name}' is no name of a table that was made here")
    return f'"{name}"'


def _extension_version(connection: Any) -> tuple[int, ...]:
    row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    return () if row is None else tuple(int(one) for one in re.findall("[0-9]+", row[0])[:3])


def _register_vectors(psycopg: Any, connection: Any, oid: int) -> None:
    """Send and read arrays of float32 as pgvector does: their length, two bytes of zero, and the numbers."""
    vector_oid = oid

    class _Dumper(psycopg.adapt.Dumper):  # type: ignore[misc]
        format = psycopg.pq.Format.BINARY
        oid = vector_oid

        def dump(self, vector: FloatArray) -> bytes:
            return len(vector).to_bytes(2) + b"\0\0" + vector.astype(">f4").tobytes()

    connection.adapters.register_dumper(np.ndarray, _Dumper)
    connection.adapters.register_loader(oid, vector_loader(psycopg))


def _refused(state: str | None, words: str) -> EngineError:
    """Error of who gets no connection."""
    if state is None:
        state = next((one for pattern, one in _REFUSALS if re.search(pattern, words)), "08001")
    return _told(state)


def _told(state: str | None, failures: Failures = ()) -> EngineError:
    """Error in our own words, of a state that PostgreSQL gave."""
    if state is None:
        return EngineAwayError(_LOST)
    kind, words = next(
        ((kind, words) for begin, kind, words in (*failures, *_FAILURES) if state.startswith(begin)),
        (EngineTableError, f"PostgreSQL refuses what it was asked, with its error {state}"),
    )
    if kind is EngineAwayError:
        return EngineAwayError(words, is_slow=state == "57014")
    return kind(words)
