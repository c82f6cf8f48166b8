"""Follower: read a home's log to its end, and lay what it says into a data folder."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.disk import files_below, hold_file, sha256_of_file, storing
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.laying import Batch, Layer, MissingObjectError, NotFetchedError
from vicinal.indexer.storage.home.ledger import Ledger, Row, identity_of_file
from vicinal.indexer.storage.home.log import LINK, Log, sha256_of
from vicinal.indexer.storage.home.marks import FOLDER
from vicinal.indexer.storage.home.stores import HomeStore

# A mirror's lock is held while files are laid, never while any are fetched or brought up.
_PATIENCE = 60.0
_MOST_ROWS = 20_000
_SECONDS_BETWEEN_PROOFS = 60.0
MOST_TRIES = 100
# Of a moment, as it is written: first that of the last look, then that of a question without an answer yet.
_WIDTH = 24
_LOOKED, ASKED = 0, 1


class Lag(Frozen):
    """Delay of a mirror: seconds since it had read the log to its end, None before it ever did."""

    seconds: float | None
    number: int


class Follower:
    """A home's log, and a data folder with what lies in it; `on_fetch` is told how many bytes came."""

    def __init__(self, data_dir: Path, home: str, store: HomeStore) -> None:
        self.data_dir, self.home, self.store, self.log = data_dir, home, store, Log(store)
        self.on_fetch: Callable[[int], None] = lambda _: None
        self.folder = data_dir / FOLDER
        self._looked = self.folder / "looked"
        self.ledger = Ledger(self.folder / "ledger.sqlite")
        self.layer = Layer(data_dir, self.ledger, store, self.folder / "objects", lambda n: self.on_fetch(n))
        # When the log was last known to go on from here.
        self.proven = -float("inf")

    def lag(self) -> Lag:
        """Delay of the folder behind the home, by when any process last read the log to its end."""
        return Lag(seconds=self._seconds_since(_LOOKED), number=self.ledger.applied())

    def _seconds_since(self, which: int) -> float | None:
        seconds = -1.0
        with suppress(OSError, ValueError):
            seconds = time.monotonic() - float(self._looked.read_text()[which * _WIDTH :][:_WIDTH])
        return seconds if seconds >= 0 else None

    def catch_up(self) -> None:
        """Take all entries that are new."""
        jumps = False
        while batch := self._unread(jumps=jumps):
            jumps = False
            for _ in range(MOST_TRIES):
                try:
                    self.layer.fetch(batch, {})
                except MissingObjectError:
                    # Replaced since, and removed: what counts is a later state.
                    if self.log.newest_checkpoint() <= batch.number:
                        raise
                    jumps = True
                    break
                try:
                    with self.locked():
                        # Another process of this machine may have gone on.
                        if self.ledger.applied() == batch.base:
                            self.layer.lay(batch, {})
                    break
                except NotFetchedError:
                    continue
        self._note(_LOOKED, time.monotonic())

    def _note(self, which: int, moment: float) -> None:
        # In place: threads and processes look at the same time, and none has to lock the others out.
        with storing(f"'{self._looked}'"):
            descriptor = os.open(self._looked, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, f"{moment:{_WIDTH}.6f}".encode(), which * _WIDTH)
            finally:
                os.close(descriptor)

    def _unread(self, *, jumps: bool) -> Batch | None:
        """The next entries, or with `jumps` the newest checkpoint, as one step; None where there are none."""
        applied = self.ledger.applied()
        entry = self.log.read(applied + 1)
        now = time.monotonic()
        self._note(ASKED, math.inf)
        if jumps or entry is not None or now - self.proven > _SECONDS_BETWEEN_PROOFS:
            checkpoint = None
            if jumps or not self.log.is_there(applied):
                checkpoint = self.log.newest_checkpoint()
            elif entry is None:
                newest = self.log.newest_checkpoint()
                checkpoint = newest if newest > applied else None
            if checkpoint is not None and checkpoint > applied:
                known = self.ledger.rows()
                return Batch.of_checkpoint(self.log.checkpoint(checkpoint), known, applied)
            if checkpoint is not None:
                raise HomeError(
                    f"home '{self.home}' does not have entry {applied or 1} any more, which "
                    f"'{self.data_dir}' rests on: bring its log back from a backup"
                )
            self.proven = now
        if entry is None:
            return None
        batch = Batch(applied, applied)
        while entry is not None and len(batch.rows) < _MOST_ROWS:
            alone = entry.kind in ("move", "drop")
            if alone and batch.number > applied:
                break
            batch.add(entry, {entry.scope: self.ledger.lease(entry.scope)})
            if alone:
                break
            entry = self.log.read(entry.number + 1)
        return batch

    def relay(self, rows: Sequence[Row]) -> None:
        """Lay files again that do not lie here as they should."""
        for _ in range(MOST_TRIES):
            with suppress(NotFetchedError):
                self.layer.fetch(Batch(0, 0, {row.path: row for row in rows}), {})
                with self.locked():
                    # Those that are as they were noted are still wanted.
                    now = [one for row in rows if (one := self.ledger.row(row.path)) and one.object]
                    self.layer.mend([one for one in now if one.object in {row.object for row in rows}], {})
                return

    def mend(self, place: str) -> bool:
        """Fetch again what of a file or folder differs from the home; tell whether any did, or HomeError."""
        named = self.ledger.row(place)
        rows = {place: named} if named is not None else self.ledger.rows(place)
        wrong = [row for row in rows.values() if row.object and not self._is_whole(row)]
        if not wrong:
            return False
        # Copies of a gallery link the same files.
        alike = (one for row in wrong for one in self.ledger.with_content(sha256_of(row.object)))
        known = {row.path: row for row in [*wrong, *(one for one in alike if not self._is_whole(one))]}
        with self.locked():
            self.ledger.note(
                row._replace(identity="") for row in known.values() if row == self.ledger.row(row.path)
            )
        self.relay([row for row in known.values() if row.object])
        return True

    def _is_whole(self, row: Row) -> bool:
        path = self.data_dir / row.path
        if row.object.startswith(LINK):
            return path.is_symlink() and f"{LINK}{path.readlink()}" == row.object
        try:
            return sha256_of_file(path) == sha256_of(row.object)
        except OSError:
            return False

    def mend_table(self, gallery: str) -> None:
        """Bring a gallery's table back to what the home says; only who holds its lease may do it."""
        with self.locked():
            came, gone = self.table_changes(gallery)
            rows = {place: self.ledger.row(place) for place in [*came, *gone]}
            wrong = [row._replace(identity="") for row in rows.values() if row is not None and row.object]
            for place in came.keys() - {row.path for row in wrong}:
                (self.data_dir / place).unlink(missing_ok=True)
            self.ledger.note(wrong)
        if wrong:
            self.relay(wrong)

    def table_changes(self, gallery: str) -> tuple[dict[str, Path], list[str]]:
        """Files of a gallery's table that are not as the home has them, and those that are gone."""
        folder = f"{places.GALLERIES}/{gallery}"
        known = self.ledger.table(f"{folder}/{places.TABLE}", f"{folder}/{places.SEALS}")
        found = set(files_below(str(self.data_dir / folder / places.TABLE), f"{folder}/{places.TABLE}"))
        if (self.data_dir / folder / places.SEALS).exists():
            found.add(f"{folder}/{places.SEALS}")
        came = {place: self.data_dir / place for place in found - known.keys() if places.is_kept(place)}
        for place in found & known.keys():
            if not places.has_unique_name(place):
                path = self.data_dir / place
                if known[place] != identity_of_file(path):
                    came[place] = path
        return came, sorted(known.keys() - found)

    def is_there(self, place: str) -> bool:
        """Tell whether the home has a file."""
        row = self.ledger.row(place)
        return row is not None and bool(row.object)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of who lays files here."""
        busy = f"mirror '{self.folder}' is being written by a process that hangs"
        with hold_file(self.folder / "mirror.lock", busy, patience=_PATIENCE):
            yield
