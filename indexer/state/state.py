"""State of a gallery or of a server: where its rows are, and how to come by them.

    <data_dir>/server.db                       jobs, keys
    <data_dir>/galleries/<name>/gallery.db     all that is remembered of a gallery beside its versions

Where several machines serve, both are tables of one PostgreSQL, which `use_database` names for a data folder.
A folder elsewhere, such as one that is copied or unpacked, has a file of its own in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, MetaData, Table, func, insert, select, text, update

from vicinal.indexer.disk import hold_file, make_folder, scratch, storing, sync_path
from vicinal.indexer.errors import GalleryExistsError, OvertakenError, StorageError
from vicinal.indexer.state import schema
from vicinal.indexer.state.bringing import bring_in, has_any
from vicinal.indexer.state.database import Database, in_memory, make_file
from vicinal.indexer.state.rows import DamagedRowError, Rows

GALLERY_FILE, SERVER_FILE = "gallery.db", "server.db"
# What a transaction that changed a gallery tells, with the gallery's key.
CHANNEL = "vicinal_changes"
_PATIENCE = 30.0
# A file that was written so recently could be written again without another time of change; the longer one
# where a file system keeps times in whole hundredths of a second, or seconds.
_SETTLED, _COARSELY_SETTLED, _COARSE = 5 * 10**7, 2 * 10**9, 10**7
# How many changes others may begin and end before one that began earlier does.
_LOOKED_BACK = 1000

Parsed = TypeVar("Parsed")
# Shared databases by data folder.
_SHARED: dict[Path, SharedState] = {}


class _Empty(threading.local):
    """Databases in memory, for who reads where nothing was ever kept."""

    def __init__(self) -> None:
        self.engines: dict[MetaData, Engine] = {}


_EMPTY = _Empty()


class SharedState:
    """A database that several machines share: which galleries it has, and the last change of each, as this
    process knows them. Where `follow` is called now and then nothing else asks for that.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.is_followed = False
        self._known: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def follow(self) -> set[str]:
        """Look what changed since the last look; names of these galleries, and of those that went or came, ''
        for the server.
        """
        table = schema.galleries
        asked = select(table.c.name, table.c.key, table.c.changed)
        with self._lock:
            before = dict(self._known)
        newest = max((changed for _, changed in before.values()), default=0)
        with self.database.reading() as connection:
            # Numbers are given before a change is over: one that ends later may have a lower one.
            recent = connection.execute(asked.where(table.c.changed > newest - _LOOKED_BACK))
            found = before | {name: (key, changed) for name, key, changed in recent}
            if connection.scalar(select(func.count()).select_from(table)) != len(found):
                found = {name: (key, changed) for name, key, changed in connection.execute(asked)}
        with self._lock:
            # What this process changed meanwhile is newer.
            newer = {name: one for name, one in self._known.items() if one != before.get(name)}
            self._known = found | {n: one for n, one in newer.items() if one[1] > found.get(n, (0, 0))[1]}
        return {name for name in before.keys() | found.keys() if before.get(name) != found.get(name)}

    def galleries(self) -> dict[str, tuple[int, int]]:
        """Key and last change of each gallery, as the last look found them."""
        with self._lock:
            return dict(self._known)

    def followed(self) -> None:
        """Follow, for all others of this process too, until `is_followed` is unset."""
        self.follow()
        self.is_followed = True

    def known(self, name: str) -> tuple[int, int] | None:
        """Key of a gallery, and the number of its last change; None for one that is not there."""
        if not self.is_followed:
            with self.database.reading() as connection:
                found = connection.execute(
                    select(schema.galleries.c.key, schema.galleries.c.changed).where(
                        schema.galleries.c.name == name
                    )
                ).first()
            return None if found is None else (found.key, found.changed)
        return self._known.get(name)

    def names(self) -> list[str]:
        """Names of the galleries of which anything is remembered, sorted."""
        if not self.is_followed:
            self.follow()
        # That of the server, and of a home, are no galleries.
        return sorted(name for name in self.galleries() if name and not name.startswith("."))

    def note(self, name: str, key: int, changed: int) -> None:
        """Know of a change of this process at once."""
        with self._lock:
            if changed > self._known.get(name, (0, 0))[1]:
                self._known[name] = key, changed

    def forget(self, name: str) -> None:
        """Know of a removal by this process at once."""
        with self._lock:
            self._known.pop(name, None)


def use_database(data_dir: Path, database: Database | None) -> SharedState | None:
    """Have the state of a data folder in a shared database; None: in files of its own again."""
    path = data_dir.absolute()
    if database is None:
        _SHARED.pop(path, None)
        return None
    _SHARED[path] = SharedState(database)
    return _SHARED[path]


def shared_state(data_dir: Path) -> SharedState | None:
    """The shared database of a data folder; None where its state is in files of its own."""
    return _SHARED.get(data_dir.absolute()) if _SHARED else None


@dataclass(frozen=True)
class State:
    """State of a gallery, by its folder, or of a server, by its data folder."""

    folder: Path
    tables: MetaData

    @property
    def shared(self) -> SharedState | None:
        """The database that several machines share; None for one machine."""
        return shared_state(self.folder if self._is_server else self.folder.parent.parent)

    @cached_property
    def path(self) -> Path:
        """File of SQLite, where it is not shared."""
        return self.folder / (SERVER_FILE if self._is_server else GALLERY_FILE)

    @property
    def exists(self) -> bool:
        """Tell whether anything was ever kept."""
        shared = self.shared
        if shared is None:
            return self.path.exists()
        return shared.known(self._name) is not None

    def stamp(self) -> Hashable:
        """A value that is another one after any change. It costs a look at the file system, or with a shared
        database that is followed nothing. None: it cannot be told yet.
        """
        shared = self.shared
        if shared is not None:
            return shared.known(self._name)
        look = _look(self.path)
        if look is None:
            # Older files may come.
            return None if has_any(self.folder, of_server=self._is_server) else ()
        settled = _SETTLED if look[-1] % _COARSE else _COARSELY_SETTLED
        return look if time.time_ns() - look[-1] > settled else None

    @contextmanager
    def reading(self) -> Iterator[Rows]:
        """Rows in one state; none where nothing was ever kept. For errors see `Database.reading`."""
        shared = self.shared
        if shared is not None:
            if has_any(self.folder, of_server=self._is_server) and not self.exists:
                with self.changing():
                    # Older files are brought in.
                    pass
            with shared.database.reading() as connection:
                key = self._key(connection)
                yield Rows(connection, -1 if key is None else key, shared.database.place)
            return
        if not self.path.exists():
            if not has_any(self.folder, of_server=self._is_server):
                with _nothing(self.tables).connect() as connection:
                    yield Rows(connection, 0, "memory")
                return
            self._make()
        database = _file_database(self.path, self.tables)
        with database.reading() as connection:
            yield Rows(connection, 0, database.place)

    @contextmanager
    def changing(self, *, is_new: bool = True) -> Iterator[Rows]:
        """Rows to be changed in one step; one at a time for a gallery. For errors see `Database.changing`;
        OvertakenError where a shared database does not have the gallery, and it may not be new.
        """
        shared = self.shared
        if shared is None:
            self._make()
            database = _file_database(self.path, self.tables)
            with database.changing() as connection:
                yield Rows(connection, 0, database.place)
        else:
            with shared.database.changing() as connection:
                key, changed = self._begin_change(connection, is_new=is_new)
                yield Rows(connection, key, shared.database.place, changed)
            shared.note(self._name, key, changed)

    @contextmanager
    def noting(self) -> Iterator[Rows]:
        """Rows that nobody keeps in memory, such as counts, to be changed: with a shared database no other
        writer waits for it, and no stamp changes.
        """
        shared = self.shared
        known = None if shared is None else shared.known(self._name)
        if shared is None or known is None:
            with self.changing() as rows:
                yield rows
            return
        with shared.database.changing() as connection:
            yield Rows(connection, known[0], shared.database.place)

    def scrub(self) -> None:
        """Make a file small that is mostly empty, as `Database.scrub` does."""
        if self.shared is None and self.path.exists():
            _file_database(self.path, self.tables).scrub()

    def damaged(self) -> list[DamagedRowError]:
        """The rows of all tables that are not what was written."""
        found: list[DamagedRowError] = []
        with self.reading() as rows:
            for table in self.tables.sorted_tables:
                for _ in rows.parts(table, on_damage=found.append):
                    pass
        return found

    def remove(self, require: Callable[[Rows], None] = lambda _: None) -> None:
        """Forget a gallery in the shared database, unless `require` refuses it there; a file of its own goes
        with its folder.
        """
        shared = self.shared
        if shared is None:
            return
        with self.changing(is_new=False) as rows:
            require(rows)
            for table in schema.GALLERY.sorted_tables:
                rows.remove(table)
            rows.remove(schema.galleries, schema.galleries.c.name == self.folder.name)
        shared.forget(self.folder.name)

    def rename(self, name: str, require: Callable[[Rows], None] = lambda _: None) -> None:
        """Give a gallery of the shared database another name, unless `require` refuses it there; a file of
        its own goes with its folder. GalleryExistsError where the name is taken.
        """
        shared, table = self.shared, schema.galleries
        if shared is None:
            return
        with self.changing(is_new=False) as rows:
            require(rows)
            if rows.has(table, table.c.name == name):
                raise GalleryExistsError(name)
            rows.change(table, table.c.name == self.folder.name, name=name)
        shared.forget(self.folder.name)
        shared.follow()

    @property
    def _is_server(self) -> bool:
        return self.tables is schema.SERVER

    @property
    def _name(self) -> str:
        """Name in a shared database."""
        return "" if self._is_server else self.folder.name

    def _key(self, connection: Connection) -> int | None:
        asked = select(schema.galleries.c.key).where(schema.galleries.c.name == self._name)
        return connection.scalar(asked)

    def _begin_change(self, connection: Connection, *, is_new: bool) -> tuple[int, int]:
        """Have this gallery alone until the transaction ends; its key, and the number of this change."""
        table, name = schema.galleries, self._name
        number = func.nextval("vicinal_change")
        mine = update(table).where(table.c.name == name).values(changed=number)
        found = connection.execute(mine.returning(table.c.key, table.c.changed)).first()
        if found is None and not is_new:
            raise OvertakenError(f"gallery '{name}' has another name by now, or is gone")
        if found is None:
            # Two that begin a gallery at once: one waits for the other.
            connection.execute(text("select pg_advisory_xact_lock(hashtext(:name))"), {"name": name})
            found = connection.execute(mine.returning(table.c.key, table.c.changed)).first()
        if found is None:
            rows = Rows(connection, 0, "")
            adding = insert(table).values({**rows.sealed(table, {"name": name}), "changed": number})
            found = connection.execute(adding.returning(table.c.key, table.c.changed)).one()
            bring_in(self.folder, Rows(connection, found.key, ""), of_server=self._is_server)
        connection.execute(text(f"notify {CHANNEL}"))
        return found.key, found.changed

    def _make(self) -> None:
        """Make the file with what older files in the folder say; it appears whole."""
        if self.path.exists():
            return
        make_folder(self.folder)
        busy = f"'{self.path}' is being made by a process that hangs"
        with hold_file(self.path.with_suffix(".lock"), busy, patience=_PATIENCE):
            if self.path.exists():
                return
            # What older files said was changed since: they must not come back for a file that is lost.
            is_brought, mark = (
                has_any(self.folder, of_server=self._is_server),
                self.path.with_suffix(".brought"),
            )
            if is_brought and mark.exists():
                raise StorageError(f"'{self.path}' is missing: bring it back from a backup")
            with scratch(self.folder) as aside, storing(f"'{self.path}'"):
                made = aside / self.path.name
                make_file(made, self.tables)
                database = Database(made, self.tables)
                with database.changing() as connection:
                    bring_in(self.folder, Rows(connection, 0, database.place), of_server=self._is_server)
                sync_path(made)
                made.rename(self.path)
                if is_brought:
                    mark.touch()
                sync_path(self.folder)


class Cached(Generic[Parsed]):
    """Value of what rows say, read again where they changed; any number of threads may ask."""

    def __init__(self, state: State, read: Callable[[Rows], Parsed]) -> None:
        self._state, self._read = state, read
        self._known: tuple[Hashable, Parsed] | None = None

    def get(self) -> Parsed:
        """Value of what they say now."""
        stamp, known = self._state.stamp(), self._known
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        with self._state.reading() as rows:
            value = self._read(rows)
        # Of before the reading: what changed since is read again.
        self._known = stamp, value
        return value


def state_of(gallery: Path) -> State:
    """State of the gallery in a folder."""
    return State(gallery, schema.GALLERY)


def server_state(data_dir: Path) -> State:
    """State of the server of a data folder."""
    return State(data_dir, schema.SERVER)


def copy_rows(source: State, target: State, *, leave_out: Collection[Table] = ()) -> None:
    """Copy all that is remembered of a gallery, or a server, but for some tables; it replaces what the other
    one remembers. A damaged row is an error: what is copied is whole.
    """
    with source.reading() as read, target.changing() as written:
        copy_all(read, written, source.tables, leave_out=leave_out)


def copy_all(
    read: Rows, written: Rows, tables: MetaData = schema.GALLERY, *, leave_out: Collection[Table] = ()
) -> None:
    """Put all that is remembered but for some tables in place of what is remembered elsewhere."""
    for table in tables.sorted_tables:
        written.remove(table)
        for part in read.parts(table) if table not in leave_out else ():
            written.add(table, *(one._asdict() for one in part))


@lru_cache(maxsize=4096)
def _file_database(path: Path, tables: MetaData) -> Database:
    return Database(path, tables)


def _nothing(tables: MetaData) -> Engine:
    """Empty tables of this thread: a connection is one transaction at a time."""
    if tables not in _EMPTY.engines:
        _EMPTY.engines[tables] = in_memory(tables)
    return _EMPTY.engines[tables]


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
