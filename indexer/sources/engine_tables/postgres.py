"""Tables and views of PostgreSQL with embeddings in a column of pgvector (`vector`, `halfvec`) or of numbers.

What else stands in an address is for libpq, such as `sslmode`; so are its variables, such as PGPASSWORD. See
`engine_tables`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import AnyArray
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.team_table import TableMark
from vicinal.models.errors import MissingPackageError

_CONNECT_SECONDS = 10
_ROWS_A_PART = 4096
_VECTORS = ("vector", "halfvec", "_float4", "_float8", "_numeric", "_int4")
# How columns are read by their types, and what they are then; all others as texts.
_NUMBERS = {
    **dict.fromkeys(("int2", "int4", "int8"), ("{}::int8", pa.int64())),
    "float4": ("{}", pa.float32()),
    "float8": ("{}", pa.float64()),
    "bool": ("{}", pa.bool_()),
    **dict.fromkeys(("json", "jsonb"), ("{}::text", pa.json_())),
    # In the form of ISO 8601, and as what cannot be a time of Python, such as infinity.
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), ("to_json({}) #>> '{{}}'", pa.string())),
}
# By the beginning of the state that PostgreSQL gives an error.
_FAILURES = {
    "28": "PostgreSQL refuses the user or the password",
    "3D000": "there is no database of this name",
    "42P01": "there is no table of this name",
    "42501": "the user may not read this table: GRANT SELECT on it",
    "22": "a column holds what is no vector",
}


class PostgresTable:
    """A table or view in a transaction; see `OpenTable`."""

    usual: Mapping[str, str] = MappingProxyType({})
    vectors: tuple[str, ...] = _VECTORS
    expected = "vector, halfvec or real[]"

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._name = table_in_sql(name)
        self.columns: Mapping[str, str] = column_kinds(connection, self._name)

    def rows(self, named: Mapping[str, str]) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Rows in parts; see `OpenTable.rows`."""
        embedding = named["embedding"]
        ways = column_ways(self.columns, embedding)
        ways[embedding] = f"{quoted(embedding)}::vector", pa.list_(pa.float32())
        wanted = ", ".join(way for way, _ in ways.values())
        schema = pa.schema([(name, kind) for name, (_, kind) in ways.items()])
        statement = f"SELECT {wanted} FROM {self._name} ORDER BY {quoted(named['id'])}"
        return schema, self._parts(statement, schema)

    def mark(self, named: Mapping[str, str]) -> TableMark:
        """State of the table; see `table_mark`."""
        return table_mark(self._connection, self._name, named["id"])

    def _parts(self, statement: str, schema: pa.Schema) -> Iterator[pa.Table]:
        with self._connection.cursor("vicinal", binary=True) as cursor:
            cursor.itersize = _ROWS_A_PART
            cursor.execute(statement)
            while rows := cursor.fetchmany(_ROWS_A_PART):
                columns = zip(zip(*rows, strict=True), schema, strict=True)
                yield pa.table([pa.array(part, kind.type) for part, kind in columns], schema=schema)


def table_mark(connection: Any, table: str, id_column: str) -> TableMark:
    """Rows that were ever added, changed and removed, and the number of the table's file; of a view, of which
    nothing is counted, its rows and last id. `table` is its name as SQL has it.
    """
    kind, *counters, file = connection.execute(
        "SELECT relkind::text, n_tup_ins, n_tup_upd, n_tup_del, relfilenode::bigint FROM pg_class "
        "LEFT JOIN pg_stat_all_tables ON relid = oid WHERE oid = %s::regclass",
        [table],
    ).fetchone()
    if kind in ("r", "m") and None not in counters:
        return TableMark(at=datetime.now(UTC), counters=tuple(counters), place=file)
    rows = f"SELECT count(*), max({quoted(id_column)}::text) FROM {table}"
    n_rows, last = connection.execute(rows).fetchone()
    return TableMark(at=datetime.now(UTC), n_rows=n_rows, last=last)


def column_kinds(connection: Any, table: str) -> dict[str, str]:
    """Types of a table's columns by name, without those of bytes; `table` is its name as SQL has it."""
    found = connection.execute(
        "SELECT attname, typname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    )
    return {str(name): str(kind) for name, kind in found if kind != "bytea"}


def column_ways(kinds: Mapping[str, str], embedding: str) -> dict[str, tuple[str, pa.DataType]]:
    """Expressions that read the columns beside the embedding, and what they are then, by name."""
    ways = {name: _NUMBERS.get(kind, ("{}::text", pa.string())) for name, kind in kinds.items()}
    return {name: (way.format(quoted(name)), kind) for name, (way, kind) in ways.items() if name != embedding}


@contextmanager
def postgres_table(server: str, table: str, shown: str) -> Iterator[PostgresTable]:
    """Open a table by the address of its database; `shown` is what errors say instead of it."""
    psycopg = import_psycopg("reading a table of PostgreSQL")
    with (
        _telling(psycopg, shown),
        psycopg.connect(server, connect_timeout=_CONNECT_SECONDS, application_name="vicinal") as connection,
    ):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        vector = psycopg.types.TypeInfo.fetch(connection, "vector")
        if vector is None:
            raise SourceError(f"the database of '{shown}' lacks pgvector: run CREATE EXTENSION vector there")
        connection.adapters.register_loader(vector.oid, vector_loader(psycopg))
        yield PostgresTable(connection, table)


def import_psycopg(purpose: str) -> Any:
    """The library, which is told to log nothing; `MissingPackageError` where it is not installed."""
    try:
        import psycopg
        import psycopg.types
    except ImportError as error:
        raise MissingPackageError("psycopg", "postgres", purpose) from error
    # What it would log names connections by their addresses; what fails is told by our own errors.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    return psycopg


def vector_loader(psycopg: Any) -> type[Any]:
    """Reader of (d,) float32 vectors of pgvector, for the adapters of a connection."""

    class _Loader(psycopg.adapt.Loader):  # type: ignore[misc]
        """Numbers of a vector as pgvector sends them: their count, two bytes of zero, and float32."""

        format = psycopg.pq.Format.BINARY

        def load(self, sent: Any) -> AnyArray:
            return np.frombuffer(sent, ">f4", offset=4).astype(np.float32)

    return _Loader


@contextmanager
def _telling(psycopg: Any, shown: str) -> Iterator[None]:
    """Say what PostgreSQL does not do, without what its own words tell of users and addresses."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        said = next((words for begin, words in _FAILURES.items() if state.startswith(begin)), None)
        if said is None and isinstance(error, psycopg.OperationalError):
            said = "PostgreSQL does not answer, or lets nobody in by this user and password"
        raise SourceError(
            f"'{shown}' cannot be read: {said or f'PostgreSQL answers with its error {state}'}"
        ) from None


def quoted(name: str) -> str:
    """Name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def table_in_sql(name: str) -> str:
    """Name of a table, maybe with a schema in front, as SQL has it."""
    return ".".join(map(quoted, name.split(".")))
