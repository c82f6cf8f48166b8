"""Replicas that share a home, in threads that run in turns: one seed, one course of events.

Each replica has a data folder, a clock, and a thread. It hands over its turn with every call to the store,
every transaction and every wait, so that a seed decides who goes first, who sleeps for long in the middle of
a change, whose call or commit fails before or after it did anything, who is cut off from all, and who dies at
which step on the disk. A replica that dies does nothing any more: not even what `finally` would do. The
database is a real one; its clock is that of the course, and nobody sleeps inside of a transaction.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Float, cast, literal, select, update

from vicinal.indexer.errors import HomeError
from vicinal.indexer.state import Database, DatabaseAwayError, use_database
from vicinal.indexer.state.schema import GALLERY, SERVER, files, galleries
from vicinal.indexer.state.schema import leases as lease_rows
from vicinal.indexer.storage.home import follower, joining, laying, leases, mirror, places, uploads
from vicinal.indexer.storage.home.joining import join
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.indexer.storage.home.places import sha256_of
from vicinal.indexer.storage.home.stores import Stored

ADDRESS = "memory"
_DISK_STEPS = ("fsync", "link", "mkdir", "rename", "replace", "rmdir", "unlink")


class KilledError(BaseException):
    """The process is dead."""


class MemoryStore:
    """Files in memory."""

    address = ADDRESS

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, datetime]] = {}
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def get(self, name: str) -> bytes | None:
        found = self.files.get(name)
        return None if found is None else found[0]

    def fetch(self, name: str, path: Path) -> bool:
        found = self.files.get(name)
        if found is not None:
            path.write_bytes(found[0])
        return found is not None

    def put(self, name: str, content: bytes | Path) -> None:
        self.files[name] = (content if isinstance(content, bytes) else content.read_bytes(), self.now)

    def list(self, folder: str) -> Iterator[Stored]:
        names = sorted(name for name in self.files if name.startswith(f"{folder}/"))
        yield from [Stored(name, self.files[name][1]) for name in names]

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


def listing_of(database: Database) -> dict[str, str]:
    """What a database lists, with the SHA-256 of every file."""
    asked = select(galleries.c.name, files.c.path, files.c.object).where(
        galleries.c.key == files.c.gallery_key
    )
    with database.reading() as connection:
        return {
            places.place_in(gallery, path): sha256_of(name)
            for gallery, path, name in connection.execute(asked)
        }


def files_in(data_dir: Path) -> dict[str, str]:
    """The same of what lies in a data folder and the home would keep."""
    found = {}
    for path in data_dir.rglob("*"):
        place = path.relative_to(data_dir).as_posix()
        if place.startswith("mirror/") or not places.is_kept(place):
            continue
        if path.is_file():
            found[place] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Replica:
    """A replica in a thread of its own; what it does is a function, which is called again after a death."""

    def __init__(self, course: Course, name: str, program: Callable[[Replica], None]) -> None:
        self.course = course
        self.name = name
        self.data_dir = course.folder / name
        self.program = program
        self.random = random.Random(f"{course.seed} {name}")
        self.is_over = self.is_dead = False
        self.sleeps = 0
        self.n_faults = 0
        # Its clock is not that of the others.
        self.skew = self.random.uniform(-1e4, 1e4)
        self.id = ""
        # Steps on the disk until it dies; 0 for never.
        self.fuse = 0
        self.error: BaseException | None = None
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_begun = False

    def step(self) -> None:
        """Let it go on up to its next call."""
        if not self._is_begun:
            self._is_begun = True
            self._thread.start()
        else:
            self._turn.release()
        self.course.main.acquire()

    def hand_over(self) -> None:
        """Let others go on."""
        self.require_life()
        self.course.main.release()
        self._turn.acquire()
        self.require_life()

    def require_life(self) -> None:
        if self.is_dead:
            raise KilledError

    def burn(self) -> None:
        """Take a step on the disk."""
        self.require_life()
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                self.is_dead = True
                raise KilledError

    def open(self) -> Mirror:
        """The mirror as a new process opens it."""
        use_database(self.data_dir, self.course.database)
        opened = join(self.data_dir, ADDRESS)
        self.id = opened.replica
        return opened

    def _run(self) -> None:
        self.course.local.replica = self
        try:
            while not self.is_over:
                try:
                    self.program(self)
                    self.is_over = True
                except KilledError:
                    self.is_dead, self.fuse = False, 0
                    self.course.deaths += 1
        except BaseException as error:
            self.error, self.is_over = error, True
        finally:
            self.course.main.release()


class Course(MemoryStore):
    """A course of events, decided by a seed; the store that its replicas share."""

    def __init__(self, folder: Path, seed: int, database: Database) -> None:
        super().__init__()
        self.folder = folder
        self.database = database
        self.seed = seed
        self.random = random.Random(seed)
        self.main = threading.Semaphore(0)
        self.local = threading.local()
        self.seconds = self._renewed = 0.0
        self.deaths = self.faults = self.naps = 0
        self.is_rough = True
        self.replicas: list[Replica] = []

    def run(self) -> None:
        """Let all replicas go on, in turns, until they are done."""
        while left := [one for one in self.replicas if not one.is_over]:
            awake = [one for one in left if one.sleeps <= 0] or left
            for one in left:
                one.sleeps -= 1
            self.pass_time(0.01)
            self.renew(awake)
            chosen = self.random.choice(awake)
            chosen.sleeps = 0
            chosen.step()
        for one in self.replicas:
            if one.error is not None:
                raise one.error

    @property
    def present(self) -> Replica | None:
        """The replica in whose thread this is called."""
        return getattr(self.local, "replica", None)

    def renew(self, awake: Sequence[Replica]) -> None:
        """Have leases of replicas that are awake kept, as often as they do it."""
        if self.seconds - self._renewed > 2.0:
            self._renewed, until = self.seconds, self.seconds + leases.LEASE_SECONDS
            held = lease_rows.c.replica.in_([one.id for one in awake]) & (lease_rows.c.until > 0.0)
            with self.database.changing() as connection:
                connection.execute(update(lease_rows).where(held).values(until=until))

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.now += timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self.seconds + (0.0 if self.present is None else self.present.skew)

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)
        if self.present is not None:
            self.present.hand_over()

    def burn(self) -> None:
        if self.present is not None:
            self.present.burn()

    def token(self, n_bytes: int = 16) -> str:
        draw = self.random if self.present is None else self.present.random
        return draw.randbytes(n_bytes).hex()

    # Calls of the store and of the database

    def meet(self) -> bool:
        """Hand over before a call, and meet what a seed has for the one who calls; tell whether it fails."""
        replica = self.present
        if replica is None:
            return False
        replica.hand_over()
        draw = replica.random.random() if self.is_rough else 1.0
        if draw < 0.003:
            # Long enough for others to believe it dead.
            self.naps += 1
            replica.sleeps = 400
            self.pass_time(20.0)
            replica.hand_over()
        elif draw < 0.005:
            self.kill(replica)
        elif draw < 0.008:
            replica.fuse = replica.random.randint(1, 30)
        elif draw < 0.012:
            replica.n_faults = replica.random.randint(1, 6)
        if replica.n_faults:
            replica.n_faults -= 1
            self.faults += 1
            return True
        return False

    def kill(self, replica: Replica) -> None:
        replica.is_dead = True
        raise KilledError

    def is_drawn(self, share: float) -> bool:
        replica = self.present
        return replica is not None and self.is_rough and replica.random.random() < share

    def _called(self, call: Callable[[], Any]) -> Any:
        if self.meet():
            if self.is_drawn(0.5):
                # The answer is lost, not the call.
                call()
            raise HomeError("home 'memory' does not answer: it is a test")
        result = call()
        if self.present is not None:
            self.present.require_life()
        return result

    @contextmanager
    def transaction(self, kind: Callable[[Database], Any]) -> Iterator[Connection]:
        """A transaction that fails at its begin, before its commit, or after it."""
        fails = self.meet()
        is_committed = fails and self.is_drawn(0.5)
        if fails and not is_committed and self.is_drawn(0.5):
            raise DatabaseAwayError("database 'memory' does not answer: it is a test")
        with kind(self.database) as connection:
            yield connection
            if self.is_drawn(0.002) and self.present is not None:
                self.kill(self.present)
            if fails and not is_committed:
                raise DatabaseAwayError("database 'memory' does not answer: it is a test")
        if self.is_drawn(0.002) and self.present is not None:
            self.kill(self.present)
        if fails:
            raise DatabaseAwayError("database 'memory' did not say that it is done: it is a test")

    def get(self, name: str) -> bytes | None:
        found: bytes | None = self._called(lambda: MemoryStore.get(self, name))
        return found

    def fetch(self, name: str, path: Path) -> bool:
        return bool(self._called(lambda: MemoryStore.fetch(self, name, path)))

    def put(self, name: str, content: bytes | Path) -> None:
        self._called(lambda: MemoryStore.put(self, name, content))

    def delete(self, name: str) -> None:
        self._called(lambda: MemoryStore.delete(self, name))


class _Serial:
    """A pool of threads in which all is done at once, in the thread that asks."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], items: Any) -> list[Any]:
        return [function(item) for item in items]


@contextmanager
def playing(course: Course) -> Iterator[None]:
    """Give mirrors the store, the database, the clock and the disk of a course."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (joining, mirror):
            patch.setattr(module, "open_store", lambda _: course)
        for module in (follower, joining, leases, uploads):
            patch.setattr(module, "time", course)
        for module in (uploads, laying):
            patch.setattr(module, "ThreadPoolExecutor", _Serial)
        for kind in ("reading", "changing"):
            whole = getattr(Database, kind)
            patch.setattr(Database, kind, lambda _, whole=whole: course.transaction(whole))
        patch.setattr(secrets, "token_hex", course.token)
        patch.setattr(leases, "_now", lambda: cast(literal(course.seconds), Float))
        patch.setattr(leases.Leases, "_show_life", lambda *_: None)
        # Removed so soon that somebody may be just about to fetch it.
        patch.setattr(mirror, "GRACE", timedelta(seconds=60.0))
        patch.setattr(uploads, "_UPLOAD_SECONDS", 40.0)
        # What was torn is not to be brought back before anyone notes it.
        patch.setattr(Mirror, "mend", lambda *_: False)
        # No machine loses its power here.
        patch.setattr(os, "fsync", lambda _: None)
        for name in _DISK_STEPS:
            patch.setattr(os, name, _burning(course, getattr(os, name)))
        yield
    for one in course.replicas:
        use_database(one.data_dir, None)


def empty(database: Database) -> None:
    """Remove all that a course has left."""
    database.prepare()
    with database.changing() as connection:
        for table in reversed([*SERVER.sorted_tables, *GALLERY.sorted_tables]):
            connection.execute(table.delete())


def _burning(course: Course, function: Callable[..., Any]) -> Callable[..., Any]:
    def step(*arguments: Any, **keywords: Any) -> Any:
        course.burn()
        done = function(*arguments, **keywords)
        course.burn()
        return done

    return step
