"""Tables of a database that hold embeddings, and what else is known of them.

    postgres://user@host:5432/shop?table=public.products&embedding=vector&label=sku&id=code

`table` names the table or view, `id`, `label`, `path` and `embedding` its columns, as far as they are not
called so; all others become metadata. What else stands there is for libpq, such as `sslmode`; so are its
variables, such as PGPASSWORD. Embeddings are a column of pgvector (`vector`, `halfvec`) or of `real[]`.

Rows are copied to a file before any is used: whoever owns the table waits for no index job, and all that is
read is of one moment.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from vicinal.calibration.arrays import AnyArray
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.embedding_files import TableRows
from vicinal.models.errors import MissingPackageError

_COLUMNS = ("id", "label", "path", "embedding")
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


@dataclass(frozen=True)
class TableAddress:
    """Address of a table, taken apart.

    Attributes:
        server: Address of the database, with what lets us in: never shown or kept.
        table: Name of the table, maybe with a schema in front.
        columns: Names of columns by what they hold, of those that the address names.
        name: The address without user and password, by which a gallery knows its items again.
    """

    server: str
    table: str
    columns: dict[str, str]
    name: str

    @classmethod
    def of(cls, address: str) -> Self:
        """Take an address apart; `SourceError` where it names no table."""
        parts = urlsplit(address)
        given = parse_qsl(parts.query, keep_blank_values=True)
        table = dict(given).get("table", "")
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit(("postgres", host, parts.path, urlencode({"table": table}), ""))
        if not table or not parts.path.strip("/"):
            raise SourceError(
                f"'{shown}' names no table: write "
                "postgres://USER@HOST/DATABASE?table=NAME&embedding=COLUMN&id=COLUMN&label=COLUMN"
            )
        ours = {name: value for name, value in given if name in _COLUMNS}
        theirs = urlencode([(name, value) for name, value in given if name not in {*ours, "table"}])
        server = urlunsplit(SplitResult("postgresql", parts.netloc, parts.path, theirs, ""))
        return cls(server, table, ours, shown)


class CopiedRows(TableRows):
    """Rows of a table of PostgreSQL, ordered by their ids, as they were when this was made; see `TableRows`.

    `mark` changes with the table: its rows, and how many of them were ever added, changed and removed.
    """

    def __init__(self, address: TableAddress, columns: Mapping[str, str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="vicinal-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = folder / address.table
        with _connected(address) as connection:
            kinds = _kinds(connection, address)
            for name in ("id", "embedding"):
                if columns[name] not in kinds:
                    raise SourceError(
                        f"table '{address.table}' has no column '{columns[name]}', only {', '.join(kinds)}: "
                        f"name the one with the {name}s in the address, {name}=COLUMN"
                    )
            if kinds[columns["embedding"]] not in _VECTORS:
                raise SourceError(
                    f"column '{columns['embedding']}' of table '{address.table}' holds "
                    f"{kinds[columns['embedding']]}, expected vector, halfvec or real[]"
                )
            _copy(connection, address, kinds, columns, file)
            changes = connection.execute(
                "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_all_tables WHERE relid = %s::regclass",
                [_table(address)],
            ).fetchone()
        super().__init__(file, ".parquet", columns["embedding"])
        self.mark: list[Any] = [len(self), *(changes or ())]


def _kinds(connection: Any, address: TableAddress) -> dict[str, str]:
    """Types of the columns by name, without those of bytes."""
    found = connection.execute(
        "SELECT attname, typname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [_table(address)],
    )
    return {str(name): str(kind) for name, kind in found if kind != "bytea"}


def _copy(
    connection: Any,
    address: TableAddress,
    kinds: Mapping[str, str],
    columns: Mapping[str, str],
    file: Path,
) -> None:
    embedding = columns["embedding"]
    ways = {
        name: _NUMBERS.get(kind, ("{}::text", pa.string()))
        for name, kind in kinds.items()
        if name != embedding
    }
    ways[embedding] = "{}::vector", pa.list_(pa.float32())
    wanted = ", ".join(way.format(_quoted(name)) for name, (way, _) in ways.items())
    schema = pa.schema([(name, kind) for name, (_, kind) in ways.items()])
    statement = f"SELECT {wanted} FROM {_table(address)} ORDER BY {_quoted(columns['id'])}"
    with (
        connection.cursor("vicinal", binary=True) as cursor,
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        cursor.itersize = _ROWS_A_PART
        cursor.execute(statement)
        while rows := cursor.fetchmany(_ROWS_A_PART):
            parts = [
                pa.array(part, kind.type) for part, kind in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.table(parts, schema=schema))


@contextmanager
def _connected(address: TableAddress) -> Iterator[Any]:
    """A connection whose transaction sees the table as it is now."""
    try:
        import psycopg
        import psycopg.types
    except ImportError as error:
        raise MissingPackageError("psycopg", "postgres", "reading a table of PostgreSQL") from error
    with (
        _telling(psycopg, address),
        psycopg.connect(
            address.server, connect_timeout=_CONNECT_SECONDS, application_name="vicinal"
        ) as connection,
    ):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        vector = psycopg.types.TypeInfo.fetch(connection, "vector")
        if vector is None:
            raise SourceError(
                f"the database of '{address.name}' lacks pgvector: run CREATE EXTENSION vector there"
            )
        connection.adapters.register_loader(vector.oid, _vector_loader(psycopg))
        yield connection


def _vector_loader(psycopg: Any) -> type[Any]:
    class _Loader(psycopg.adapt.Loader):  # type: ignore[misc]
        """Numbers of a vector as pgvector sends them: their count, two bytes of zero, and float32."""

        format = psycopg.pq.Format.BINARY

        def load(self, sent: Any) -> AnyArray:
            return np.frombuffer(sent, ">f4", offset=4).astype(np.float32)

    return _Loader


@contextmanager
def _telling(psycopg: Any, address: TableAddress) -> Iterator[None]:
    """Say what PostgreSQL does not do, without what its own words tell of users and addresses."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        said = next((words for begin, words in _FAILURES.items() if state.startswith(begin)), None)
        if said is None and isinstance(error, psycopg.OperationalError):
            said = "PostgreSQL does not answer, or lets nobody in by this user and password"
        raise SourceError(
            f"'{address.name}' cannot be read: {said or f'PostgreSQL answers with its error {state}'}"
        ) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(address: TableAddress) -> str:
    return ".".join(map(_quoted, address.table.split(".")))
