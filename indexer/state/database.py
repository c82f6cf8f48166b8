"""Database: a file of SQLite, or PostgreSQL; transactions, migrations, and errors in words."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, create_engine, insert, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

from vicinal.indexer.errors import DamagedGalleryError, GalleryError, HomeError, StorageError
from vicinal.indexer.state import schema

# Whoever writes holds a database for milliseconds; waiting longer means that a process hangs.
_BUSY_SECONDS = 10
_CONNECT_SECONDS = 3
# Of a network that loses all packets: 10 seconds.
_CUT_OFF = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2}
# Migrations, oldest first, each with the metadata of what a database holds; the first makes all tables. The
# number of those that were made stands in it. One that is here is never changed, but followed by another.
Migration = Callable[[Connection, MetaData], None]
_LOCK = 0x766963  # 'vic': of who makes tables in PostgreSQL


def _make_tables(connection: Connection, metadata: MetaData) -> None:
    metadata.create_all(connection)


MIGRATIONS: tuple[Migration, ...] = (_make_tables,)


class DatabaseAwayError(HomeError):
    """The database that several machines share does not answer."""


class Database:
    """A database with some tables. SQLite's file is opened for each transaction: its folder may be moved,
    copied and removed between two of them.
    """

    def __init__(self, address: Path | URL, *tables: MetaData) -> None:
        self.address = address
        self._tables = tables
        # Identity of the file that was prepared.
        self._ready: tuple[int, ...] | None = None
        self._preparing = threading.Lock()

    @property
    def path(self) -> Path | None:
        """File of SQLite; None for PostgreSQL."""
        return self.address if isinstance(self.address, Path) else None

    @property
    def place(self) -> str:
        """Words for where it is, without a password."""
        if isinstance(self.address, Path):
            return f"'{self.address}'"
        return f"database '{self.address.render_as_string(hide_password=True)}'"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one state of all tables.

        Raises:
            DatabaseAwayError: PostgreSQL does not answer.
            DamagedGalleryError: SQLite finds its file damaged.
            StorageError: The file cannot be read.
        """
        with self._told():
            self.prepare()
            with self._engine.connect() as connection:
                if self.path is None:
                    connection = connection.execution_options(
                        isolation_level="REPEATABLE READ", postgresql_readonly=True
                    )
                _begin(connection, "begin")
                yield connection
                connection.rollback()

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A transaction that is on the disk when it ends, and nothing of it where it fails.

        Raises:
            DatabaseAwayError: PostgreSQL does not answer.
            DamagedGalleryError: SQLite finds its file damaged.
            StorageError: The disk is full, the file cannot be written, or another process holds it.
        """
        with self._told():
            self.prepare()
            with self._engine.connect() as connection:
                _begin(connection, "begin immediate")
                yield connection
                connection.commit()

    @contextmanager
    def listening(self, channel: str) -> Iterator[Callable[[float], None]]:
        """A wait for what a transaction of PostgreSQL tells on a channel, or for some seconds.

        Raises:
            DatabaseAwayError: PostgreSQL does not answer.
        """
        with self._told(), self._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as link:
            link.execute(text(f"listen {channel}"))
            driver: Any = link.connection.driver_connection

            def wait(seconds: float) -> None:
                try:
                    for _ in driver.notifies(timeout=seconds, stop_after=1):
                        pass
                except link.dialect.loaded_dbapi.Error as error:
                    raise self._in_words(error) from error

            yield wait
            link.execute(text(f"unlisten {channel}"))

    def prepare(self) -> None:
        """Make missing tables, and bring older ones to the present form; once a process and file."""
        with self._preparing:
            file = self._file()
            if self._ready == file:
                return
            with self._told(), self._engine.connect() as connection:
                if self.path is not None:
                    _require_whole(connection, self.path)
                _begin(connection, "begin immediate")
                if self.path is None:
                    connection.execute(text(f"select pg_advisory_xact_lock({_LOCK})"))
                _migrate(connection, self._tables, self.place)
                connection.commit()
            self._ready = file

    def scrub(self) -> None:
        """Make SQLite's file small where it is mostly empty; PostgreSQL's own vacuum does that in time."""
        if self.path is not None:
            with self._told(), self._engine.connect() as connection:
                asked = ("pragma freelist_count", "pragma page_count")
                n_free, n = (int(connection.exec_driver_sql(one).scalar() or 0) for one in asked)
                # What was removed is overwritten already, and nobody writes meanwhile.
                if 2 * n_free > n:
                    connection.exec_driver_sql("vacuum")

    def _file(self) -> tuple[int, ...]:
        if self.path is None:
            return ()
        try:
            found = self.path.stat()
        except OSError as error:
            raise StorageError(f"{self.place} cannot be used: {error.strerror}") from error
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close what is open of PostgreSQL's connections."""
        self._engine.dispose()

    @cached_property
    def _engine(self) -> Engine:
        if isinstance(self.address, URL):
            options = f"-c lock_timeout={_BUSY_SECONDS}s -c statement_timeout={3 * _BUSY_SECONDS}s"
            return create_engine(
                self.address,
                pool_pre_ping=True,
                pool_recycle=3600,
                connect_args={"connect_timeout": _CONNECT_SECONDS, "options": options, **_CUT_OFF},
            )
        return create_engine("sqlite://", creator=self._opened, poolclass=NullPool)

    def _opened(self) -> sqlite3.Connection:
        path = Path(str(self.address))
        # Never made here: a gallery that went meanwhile must not come back as an empty file.
        can_write = os.access(path.parent, os.W_OK)
        mode = "mode=rw" if can_write else "mode=ro&immutable=1"
        file = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # A seal tells what is no text any more.
        file.text_factory = partial(str, encoding="utf-8", errors="replace")
        file.execute("pragma synchronous = full")
        # What was removed is not to be found in the file either.
        file.execute("pragma secure_delete = on")
        return file

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._in_words(error.orig or error) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._in_words(error) from error

    def _in_words(self, error: BaseException) -> GalleryError:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if self.path is None:
            return DatabaseAwayError(f"{self.place} does not answer: {said}")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # Words of SQLite may quote the damage.
        is_garbled = isinstance(error, UnicodeDecodeError)
        if is_garbled or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return DamagedGalleryError(f"{self.place} is damaged: bring it back from a backup", self.path)
        return StorageError(f"{self.place} cannot be used: {said}")


def postgres(address: str) -> Database:
    """The PostgreSQL of several machines, by an address such as `postgresql+psycopg://user@host/name`.

    Raises:
        GalleryError: That is no address of PostgreSQL.
    """
    with suppress(ArgumentError, NoSuchModuleError):
        url = make_url(address)
        if url.get_backend_name() == "postgresql":
            return Database(url.set(drivername="postgresql+psycopg"), schema.SERVER, schema.GALLERY)
    raise GalleryError("the database's address must be like postgresql://user:password@host:5432/name")


def make_file(path: Path, tables: MetaData) -> None:
    """Make a file of SQLite with all its tables; nobody else may use it yet."""
    path.touch(mode=0o600)
    # Without a write-ahead log, which nobody can read on a full disk: it needs a file beside it.
    Database(path, tables).prepare()


def in_memory(tables: MetaData) -> Engine:
    """Empty tables, for who reads where nothing was ever kept."""
    # It may be let go of by another thread than the one that reads it.
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with engine.begin() as connection:
        _migrate(connection, (tables,), "memory")
    return engine


def _begin(connection: Connection, in_sqlite: str) -> None:
    # PostgreSQL's driver begins by itself.
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(in_sqlite)


def _require_whole(connection: Connection, path: Path) -> None:
    found = connection.exec_driver_sql("pragma integrity_check(1)").scalar()
    if found != "ok":
        raise DamagedGalleryError(f"'{path}' is damaged ({found}): bring it back from a backup", path)


def _migrate(connection: Connection, tables: tuple[MetaData, ...], place: str) -> None:
    number: Any = None
    schema.schema_version.metadata.create_all(connection)
    number = connection.scalar(select(schema.schema_version.c.number))
    if number is not None and number > len(MIGRATIONS):
        raise GalleryError(f"{place} was written by a newer Vicinal: install that one, or restore a backup")
    for migration in MIGRATIONS[number or 0 :]:
        for metadata in tables:
            migration(connection, metadata)
    if number is None:
        connection.execute(insert(schema.schema_version), {"number": len(MIGRATIONS)})
    elif number < len(MIGRATIONS):
        connection.execute(schema.schema_version.update().values(number=len(MIGRATIONS)))
