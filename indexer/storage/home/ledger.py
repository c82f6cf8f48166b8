"""Ledger: what a mirror knows of its home, and what of it lies here; one file of SQLite in the data folder.

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

from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.disk import write_ahead
from vicinal.indexer.storage.home.log import Checkpoint, Lease, sha256_of

_SECONDS = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, object TEXT, sha256 TEXT, size INTEGER, number INTEGER, replica TEXT, identity TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS contents ON files (sha256);
CREATE INDEX IF NOT EXISTS missing ON files (path) WHERE identity = '' AND object != '';
CREATE TABLE IF NOT EXISTS leases (
    scope TEXT PRIMARY KEY, token INTEGER, holder TEXT, replica TEXT, is_held INTEGER
);
CREATE TABLE IF NOT EXISTS applied (number INTEGER);
"""


class Row(NamedTuple):
    """A file of the home, its object '' where gone, `identity` '' where it does not lie here as it should."""

    path: str
    object: str
    size: int
    number: int
    replica: str
    identity: str


_COLUMNS = "path, object, size, number, replica, identity"


def identity_of_file(path: Path) -> str:
    """Look of a file by which it is known again; '' where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"


class Ledger:
    """The ledger in a file, open in this process; whoever writes to it holds the lock of the mirror."""

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

    def applied(self) -> int:
        """Number of the last entry that lies here."""
        with self._open() as file:
            return _applied(file)

    def row(self, place: str) -> Row | None:
        """A file that is or was there."""
        return next(iter(self._rows("path = ?", place)), None)

    def rows(self, below: str = "") -> dict[str, Row]:
        """Files of the home below a folder, by path."""
        ends = (f"{below}/", f"{below}0") if below else ("", "\U0010ffff")
        return {row.path: row for row in self._rows("path >= ? AND path < ? AND object != ''", *ends)}

    def table(self, folder: str, file: str) -> dict[str, str]:
        """Identities of the files of a table and of the file beside it, by path."""
        with self._open() as ledger:
            found = ledger.execute(
                "SELECT path, identity FROM files "
                "WHERE object != '' AND (path = ? OR path >= ? AND path < ?)",
                (file, f"{folder}/", f"{folder}0"),
            )
            return dict(found.fetchall())

    def is_known(self, folder: str) -> bool:
        """Tell whether the home has a file below a folder."""
        with self._open() as file:
            found = file.execute(
                "SELECT 1 FROM files WHERE path >= ? AND path < ? AND object != '' LIMIT 1",
                (f"{folder}/", f"{folder}0"),
            )
            return found.fetchone() is not None

    def missing(self) -> list[Row]:
        """Files that do not lie here as they should."""
        return self._rows("identity = '' AND object != ''")

    def with_content(self, sha256: str) -> list[Row]:
        """Files of this content."""
        return self._rows("sha256 = ?", sha256)

    def lease(self, scope: str) -> Lease | None:
        """Last lease of a scope."""
        with self._open() as file:
            found = file.execute(
                "SELECT token, holder, replica, is_held FROM leases WHERE scope = ?", (scope,)
            ).fetchone()
        if found is None:
            return None
        return Lease(token=found[0], holder=found[1], replica=found[2], is_held=bool(found[3]))

    def checkpoint(self) -> Checkpoint:
        """All of it, without what lies here."""
        with self._open() as file:
            files = {
                path: (row.object, row.size, row.number, row.replica) for path, row in self.rows().items()
            }
            leases = {
                row[0]: Lease(token=row[1], holder=row[2], replica=row[3], is_held=bool(row[4]))
                for row in file.execute("SELECT scope, token, holder, replica, is_held FROM leases")
            }
            return Checkpoint(number=_applied(file), files=files, leases=leases)

    def take(
        self,
        number: int,
        rows: Iterable[Row],
        leases: dict[str, Lease],
        *,
        moved: tuple[str, str] | None = None,
    ) -> None:
        """Note what an entry changed, in one step."""
        with self._open() as file, file:
            if moved is not None:
                source, target = moved
                _write(
                    file,
                    [
                        row._replace(path=target + path.removeprefix(source), number=number)
                        for path, row in self.rows(source).items()
                    ],
                )
            _write(file, rows)
            file.executemany(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)",
                [(scope, one.token, one.holder, one.replica, one.is_held) for scope, one in leases.items()],
            )
            file.execute("DELETE FROM applied")
            file.execute("INSERT INTO applied VALUES (?)", (number,))

    def note(self, rows: Iterable[Row]) -> None:
        """Note what lies here, of entries that were taken."""
        with self._open() as file, file:
            _write(file, rows)

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


def _applied(file: sqlite3.Connection) -> int:
    found = file.execute("SELECT number FROM applied").fetchone()
    return 0 if found is None else int(found[0])


def _write(file: sqlite3.Connection, rows: Iterable[Row]) -> None:
    file.executemany(
        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (one.path, one.object, sha256_of(one.object), one.size, one.number, one.replica, one.identity)
            for one in rows
        ],
    )
