"""Ledger: what of a home lies in a data folder; one file of SQLite, which laying and nothing else needs.

A file is known again by its bytes, time of change and inode, so that nothing is hashed that did not change.
Losing the last steps of the ledger, as a machine that loses its power may, costs laying them once more.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vicinal.indexer.disk import write_ahead
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.places import sha256_of

_SECONDS = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, object TEXT, sha256 TEXT, size INTEGER, identity TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS contents ON files (sha256);
CREATE INDEX IF NOT EXISTS missing ON files (path) WHERE identity = '';
CREATE TABLE IF NOT EXISTS galleries (name TEXT PRIMARY KEY, key INTEGER, seen INTEGER);
"""
_COLUMNS = "path, object, size, identity"


class Row(NamedTuple):
    """A file of the home below the data folder; `identity` is '' where it does not lie here as it should."""

    path: str
    object: str
    size: int
    identity: str = ""


class Laid(NamedTuple):
    """A gallery that lies here, by its key in the database, and its last change that does."""

    key: int
    seen: int


def identity_of_file(path: Path) -> str:
    """Look of a file by which it is known again; '' where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"


class Ledger:
    """The ledger in a file, open in this process; who writes of a gallery holds its lock of laying."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            self._file = sqlite3.connect(path, _SECONDS, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._refused(error) from error
        weakref.finalize(self, self._file.close)
        with self._open() as file:
            write_ahead(file, patience=_SECONDS)
            file.execute("PRAGMA synchronous = NORMAL")
            file.executescript(_TABLES)

    def galleries(self) -> dict[str, Laid]:
        """Galleries that lie here."""
        with self._open() as file:
            return {row[0]: Laid(*row[1:]) for row in file.execute("SELECT name, key, seen FROM galleries")}

    def laid(self, gallery: str) -> Laid | None:
        """A gallery that lies here; None for one that does not."""
        with self._open() as file:
            found = file.execute("SELECT key, seen FROM galleries WHERE name = ?", (gallery,)).fetchone()
        return None if found is None else Laid(*found)

    def row(self, place: str) -> Row | None:
        """A file of the home."""
        return next(iter(self._rows("path = ?", place)), None)

    def rows(self, below: str) -> dict[str, Row]:
        """Files of the home below a folder, by path."""
        return {row.path: row for row in self._rows("path >= ? AND path < ?", f"{below}/", f"{below}0")}

    def paths(self, gallery: str) -> set[str]:
        """Files of a gallery, or of the whole home."""
        folder = places.folder_of(gallery)
        if gallery != places.WHOLE:
            return set(self.rows(folder))
        with self._open() as file:
            found = {row[0] for row in file.execute("SELECT path FROM files")}
        return {place for place in found if places.gallery_of(place) == places.WHOLE}

    def missing(self) -> list[Row]:
        """Files that do not lie here as they should."""
        return self._rows("identity = ''")

    def with_content(self, sha256: str) -> list[Row]:
        """Files of this content."""
        return self._rows("sha256 = ?", sha256)

    def take(self, gallery: str, laid: Laid, rows: Iterable[Row], gone: Iterable[str]) -> None:
        """Note what was laid of a gallery, in one step."""
        with self._open() as file, file:
            _write(file, rows)
            file.executemany("DELETE FROM files WHERE path = ?", [(place,) for place in gone])
            file.execute("INSERT OR REPLACE INTO galleries VALUES (?, ?, ?)", (gallery, *laid))

    def note(self, rows: Iterable[Row]) -> None:
        """Note how files of galleries that lie here lie here."""
        with self._open() as file, file:
            _write(file, rows)

    def rename(self, gallery: str, name: str, folder: str, target: str) -> None:
        """Have a gallery under another name, with its files below another folder."""
        rows = self.rows(folder)
        with self._open() as file, file:
            file.executemany("DELETE FROM files WHERE path = ?", [(place,) for place in rows])
            _write(file, [row._replace(path=target + row.path.removeprefix(folder)) for row in rows.values()])
            file.execute("UPDATE galleries SET name = ? WHERE name = ?", (name, gallery))

    def forget(self, gallery: str, folder: str) -> None:
        """Know nothing of a gallery any more."""
        gone = self.rows(folder)
        with self._open() as file, file:
            file.executemany("DELETE FROM files WHERE path = ?", [(place,) for place in gone])
            file.execute("DELETE FROM galleries WHERE name = ?", (gallery,))

    def _rows(self, where: str, *values: str) -> list[Row]:
        with self._open() as file:
            return [Row(*row) for row in file.execute(f"SELECT {_COLUMNS} FROM files WHERE {where}", values)]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._file
            except sqlite3.Error as error:
                raise self._refused(error) from error

    def _refused(self, error: sqlite3.Error) -> HomeError:
        return HomeError(
            f"'{self.path}' cannot be used: {error}; where that stays, stop the replica and remove it: "
            "it is made again of the home"
        )


def _write(file: sqlite3.Connection, rows: Iterable[Row]) -> None:
    file.executemany(
        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)",
        [(one.path, one.object, sha256_of(one.object), one.size, one.identity) for one in rows],
    )
