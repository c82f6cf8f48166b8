"""Addresses of tables in engines, and copies of their rows; see `engine_tables`."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.embedding_files import TableRows
from vicinal.indexer.sources.engine_tables.milvus import milvus_collection
from vicinal.indexer.sources.engine_tables.postgres import postgres_table
from vicinal.indexer.sources.team_table import TableMark

_COLUMNS = ("id", "label", "path", "embedding")


class OpenTable(Protocol):
    """A table of a team; nothing is written to it.

    Attributes:
        columns: Kinds of its columns by their names, as they are called there.
        usual: Columns that hold ids and embeddings where an address does not say.
        vectors: Kinds that embeddings may have.
        expected: Those that are told.
    """

    columns: Mapping[str, str]
    usual: Mapping[str, str]
    vectors: tuple[str, ...]
    expected: str

    def rows(self, named: Mapping[str, str]) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Rows in parts, ordered by their ids, with the names of the columns that hold what."""

    def mark(self, named: Mapping[str, str]) -> TableMark:
        """State of the table, as cheaply as it can be had."""


@dataclass(frozen=True)
class _Engine:
    name: str  # As the option `index` has it
    port: int
    table: str  # Word for a table, and for a column
    column: str
    needs_database: bool
    open: Callable[[str, str, str], AbstractContextManager[OpenTable]]

    @property
    def example(self) -> str:
        """Address in its full form."""
        words = "&".join(f"{name}={self.column.upper()}" for name in ("embedding", "id", "label"))
        return f"{self.name}://USER@HOST:{self.port}/DATABASE?{self.table}=NAME&{words}"


_POSTGRES = _Engine("postgres", 5432, "table", "column", True, postgres_table)
_MILVUS = _Engine("milvus", 19530, "collection", "field", False, milvus_collection)
_ENGINES = {"postgres": _POSTGRES, "postgresql": _POSTGRES, "milvus": _MILVUS}


@dataclass(frozen=True)
class TableAddress:
    """Address of a table, taken apart.

    Attributes:
        engine: Words of the engine, and the call that opens a table.
        server: Address of the database, with what lets us in: never shown or kept.
        table: Name of the table, maybe with a schema in front, or of the collection.
        columns: Names of columns by what they hold, of those that the address names.
        name: The address without user and password, by which a gallery knows its items again.
    """

    engine: _Engine
    server: str
    table: str
    columns: dict[str, str]
    name: str

    @classmethod
    def of(cls, address: str) -> Self:
        """Take an address apart; `SourceError` where it names no table."""
        parts = urlsplit(address)
        engine = _ENGINES[parts.scheme]
        given = parse_qsl(parts.query, keep_blank_values=True)
        table = dict(given).get(engine.table, "")
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit((engine.name, host, parts.path, urlencode({engine.table: table}), ""))
        if not table or (engine.needs_database and not parts.path.strip("/")):
            raise SourceError(f"'{shown}' names no {engine.table}: write {engine.example}")
        ours = {name: value for name, value in given if name in _COLUMNS}
        theirs = urlencode([(name, value) for name, value in given if name not in {*ours, engine.table}])
        server = urlunsplit(SplitResult(parts.scheme, parts.netloc, parts.path, theirs, ""))
        return cls(engine, server, table, ours, shown)


def let_in(address: str, servers: Mapping[str, str]) -> str:
    """Address of a table, with user and password of the setting for its server where it has none."""
    try:
        parts = urlsplit(address)
        engine = _ENGINES[parts.scheme]
        known = urlsplit(servers.get(engine.name, ""))
        is_same = (parts.hostname, parts.port or engine.port) == (known.hostname, known.port or engine.port)
    except ValueError:
        # Of a port that is no number, which is told where it is opened.
        return address
    if parts.username or not known.username or not is_same:
        return address
    user = known.netloc.rpartition("@")[0]
    secure = "&secure=true" if known.scheme == "https" else ""
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}", query=parts.query + secure))


def is_same_database(server: str, setting: str) -> bool:
    """Tell whether an address of a table and a setting name one database, as far as both are addresses."""
    try:
        one, other = urlsplit(server), urlsplit(setting)
        port = _ENGINES[one.scheme].port
        places = {(at.hostname, at.port or port, at.path.strip("/")) for at in (one, other)}
    except ValueError:
        return True
    return len(places) == 1 or not other.hostname


class CopiedRows(TableRows):
    """Rows of a table of an engine, ordered by their ids, as they were when this was made; see `TableRows`.

    `columns` says which column holds what, those that are `named` and the usual ones. `mark` changes with the
    table, and `server` is where it is: never shown or kept.
    """

    def __init__(self, address: TableAddress, named: Mapping[str, str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="vicinal-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = folder / address.table
        with address.engine.open(address.server, address.table, address.name) as table:
            usual = {name: name for name in _COLUMNS} | dict(table.usual)
            self.columns = usual | address.columns | dict(named)
            _check(table, self.columns, address)
            # First: what is changed meanwhile is read next time.
            mark = table.mark(self.columns)
            schema, parts = table.rows(self.columns)
            with pyarrow.parquet.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=False
            ) as writer:
                for part in parts:
                    writer.write_table(part)
        super().__init__(file, ".parquet", self.columns["embedding"])
        self.server = address.server
        self.mark = mark.model_copy(update={"n_rows": len(self)})


def _check(table: OpenTable, columns: Mapping[str, str], address: TableAddress) -> None:
    """Refuse a table without ids or embeddings where they are looked for."""
    engine = address.engine
    for name in ("id", "embedding"):
        if columns[name] not in table.columns:
            raise SourceError(
                f"{engine.table} '{address.table}' has no {engine.column} '{columns[name]}', only "
                f"{', '.join(table.columns)}: name the one with the {name}s in the address, "
                f"{name}={engine.column.upper()}"
            )
    if (kind := table.columns[columns["embedding"]]) not in table.vectors:
        raise SourceError(
            f"{engine.column} '{columns['embedding']}' of {engine.table} '{address.table}' holds {kind}, "
            f"expected {table.expected}"
        )
