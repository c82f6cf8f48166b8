"""Queue of jobs: huey's storage in an SQLite file, or in Redis when its address is set; the same on both."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from huey.storage import RedisStorage, SqliteStorage

from vicinal.indexer.errors import StorageError
from vicinal.indexer.storage.files import make_folder
from vicinal.service.errors import JobsUnavailableError, RedisAwayError
from vicinal.service.redis_link import RedisLink

Answer = TypeVar("Answer")
# A job and which attempt at it; the same ticket may lie in the queue twice, and is honored once.
Ticket = tuple[str, int]
logger = logging.getLogger(__name__)
_NAME = "vicinal"
# What tickets are called in the store, where workers of other versions read them too.
_TASK = "vicinal.service.jobs.queue.run_job"
# Longest wait for the file's lock, which a process holds for one write; of a look that answers a probe.
_BUSY_SECONDS = 5.0
_LOOK_SECONDS = 0.5
# What passes: another process holds the lock, or the disk is full or fails for the moment.
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class JobQueue:
    """Tickets to run, and a small store beside them, in Redis or a file that all processes share."""

    def __init__(self, path: Path, link: RedisLink | None = None) -> None:
        self._path = path
        self._link = link
        self.storage = _make_storage(path, link)
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._file: tuple[int, int] | None = None
        self._problem: str | None = None

    def open(self) -> None:
        """Find out whether there is a place for jobs; one that does not answer yet is asked again later."""
        if self._link is None:
            try:
                self._ask(lambda _: None)
            except JobsUnavailableError as error:
                if not _passes(error.__cause__):
                    raise

    def look(self) -> str | None:
        """Reason why the file cannot be written; None where it can, where there is none, and with Redis."""
        if self._link is not None or not os.path.lexists(self._path):
            return None
        address = f"{self._path.resolve().as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(address, _LOOK_SECONDS, isolation_level=None, uri=True)) as asked:
                asked.execute("begin immediate")
        except sqlite3.Error as error:
            return self._note(error)
        self._note_answer()
        return None

    @property
    def is_begun(self) -> bool:
        """Tell whether there can be anything in it; asking makes no file."""
        return self._link is not None or self._path.exists()

    def enqueue(self, job_id: str, attempt: int) -> None:
        """Let a worker make an attempt at a job."""
        ticket = json.dumps({"name": _TASK, "args": [job_id, attempt]}).encode()
        self._ask(lambda storage: storage.enqueue(ticket))

    def waiting(self) -> set[Ticket]:
        """Tickets that no worker has taken."""
        return set(map(_ticket, self._ask(lambda storage: storage.enqueued_items())))

    def dequeue(self) -> Ticket | None:
        """Take the next ticket; None where none waits."""
        taken = self._ask(lambda storage: storage.dequeue())
        return None if taken is None else _ticket(taken)

    def put(self, key: str, value: bytes) -> None:
        """Store a value."""
        self._ask(lambda storage: storage.put_data(key, value))

    def put_if_empty(self, key: str, value: bytes) -> bool:
        """Store a value unless there is one, in one step; whether it was stored."""
        return bool(self._ask(lambda storage: storage.put_if_empty(key, value)))

    def get(self, *keys: str) -> dict[str, bytes]:
        """The values that there are."""
        return self._ask(lambda storage: storage.peek_many(list(keys)))

    def all(self) -> dict[str, bytes]:
        """Every stored value."""
        return self._ask(lambda storage: storage.result_items())

    def remove(self, *keys: str) -> None:
        """Forget values."""
        self._ask(lambda storage: [storage.delete_data(key) for key in keys])

    def close(self) -> None:
        """Close the file."""
        self.storage.close()

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        try:
            if self._link is not None:
                return self._link.ask(lambda _: question(self.storage))
            self._prepare()
            answer = question(self.storage)
        except (OSError, StorageError, sqlite3.Error) as error:
            raise JobsUnavailableError(self._note(error)) from error
        if self._problem is not None:
            # A question that only reads is answered while nobody can write.
            self.look()
        return answer

    def _prepare(self) -> None:
        """Make the file ready; others see the one that lies there now, and nobody one that is gone."""
        with self._preparing:
            if self._file is not None and _file_at(self._path) == self._file:
                return
            self.storage.close()
            make_folder(self._path.parent)
            if not self._path.exists():
                # Requests are in it. What SQLite lays beside it is as private as the file itself.
                self._path.touch(mode=0o600)
            self.storage.initialize_schema()
            self._file = _file_at(self._path)

    def _note(self, error: Exception) -> str:
        if isinstance(error, RedisAwayError):
            # The link has logged it.
            return f"the store of jobs does not answer: {error}"
        if _passes(error):
            problem = f"the store of jobs does not answer: {error}{_holder(self._path)}"
        else:
            problem = f"jobs cannot be kept in '{self._path}': {error}; {_way_out(error)}"
        with self._lock:
            is_new, self._problem = self._problem is None, problem
        if is_new:
            logger.warning("%s; jobs wait for it", problem)
        return problem

    def _note_answer(self) -> None:
        with self._lock:
            was_away, self._problem = self._problem is not None, None
        if was_away:
            logger.warning("the store of jobs answers again")


def _make_storage(path: Path, link: RedisLink | None) -> Any:
    """The storage of a queue, which is asked nothing yet."""
    if link is not None:
        return RedisStorage(_NAME, blocking=False, connection_pool=link.client.connection_pool)
    return SqliteStorage(
        _NAME, str(path), create_tables=False, fsync=True, strict_fifo=True, timeout=_BUSY_SECONDS
    )


def _ticket(stored: bytes) -> Ticket:
    """Read a ticket: what comes out of a store must not be able to run code, as pickles are."""
    job_id, attempt = json.loads(stored)["args"]
    return job_id, attempt


def _file_at(path: Path) -> tuple[int, int] | None:
    """Identity of the file that lies somewhere now; None where there is none."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _passes(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING


def _way_out(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "it is damaged: stop what uses it, move it away with its -wal and -shm, give its jobs again"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or isinstance(error, PermissionError):
        return "let the service write it, or set VICINAL_RUN_JOBS=false, which answers searches only"
    return "a server that only answers searches needs none: set VICINAL_RUN_JOBS=false"


def _holder(path: Path) -> str:
    """Name the lock's process, to end a sentence; opening the files to ask would drop locks held here."""
    with suppress(OSError, ValueError, IndexError):
        files = [path, path.with_name(f"{path.name}-shm")]
        inodes = {str(one.stat().st_ino) for one in files if one.exists()}
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            *_, mode, pid, file, _, _ = line.split()
            if mode == "WRITE" and file.rpartition(":")[2] in inodes and int(pid) not in (0, os.getpid()):
                state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                is_stopped = f" and is stopped: `kill -CONT {pid}` lets it go on" if state in "Tt" else ""
                return f"; process {pid} holds it{is_stopped}"
    return ""
