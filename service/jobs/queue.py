"""Queue of jobs: huey over an SQLite file, or over Redis when its address is set; the same code on both."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from huey import RedisHuey, SqliteHuey
from huey.registry import Message

from vicinal.service.errors import JobsUnavailableError, RedisAwayError
from vicinal.service.redis_link import RedisLink

__all__ = ["JobQueue", "Ticket"]

Answer = TypeVar("Answer")
# A job and which attempt at it; the same ticket may lie in the queue twice, and is honored once.
Ticket = tuple[str, int]
_NAME = "vicinal"


class JobQueue:
    """Tickets to run, and a small store beside them, in one place that all processes share.

    Args:
        path: File of the embedded store, made when it is first used; not used with a link to Redis.
        link: Link to Redis.

    Attributes:
        run: Called with job id and attempt when a consumer takes a ticket; set by the worker.
    """

    def __init__(self, path: Path, link: RedisLink | None = None) -> None:
        self._path = path
        self._link = link
        self._lock = threading.Lock()
        self._huey: Any = None
        self._storage: Any = None
        self._task: Any = None
        self.run: Callable[[str, int], None] = _nobody_runs

    @property
    def huey(self) -> Any:
        """The queue as huey's consumer wants it.

        Raises:
            JobsUnavailableError: The file cannot be written.
        """
        with self._lock:
            if self._huey is None:
                opened = _open_huey(self._path, self._link)
                self._storage = opened.storage
                self._task = opened.task(name="run_job")(lambda job_id, attempt: self.run(job_id, attempt))
                if self._link is not None:
                    opened.storage = _PatientStorage(self, opened.storage)
                self._huey = opened
            return self._huey

    @property
    def is_begun(self) -> bool:
        """Whether there can be anything in it; asking makes no file."""
        return self._link is not None or self._path.exists()

    def enqueue(self, job_id: str, attempt: int) -> None:
        """Let a consumer run an attempt at a job."""
        self._ask(lambda _: self._task(job_id, attempt))

    def waiting(self) -> set[Ticket]:
        """Tickets that no consumer has taken."""
        tickets = self._ask(lambda storage: storage.enqueued_items())
        return {tuple(self.huey.deserialize_task(ticket).args) for ticket in tickets}

    def dequeue(self) -> Any:
        """The next ticket as huey stores it, or None."""
        return self._ask(lambda storage: storage.dequeue())

    def put(self, key: str, value: bytes) -> None:
        """Store a value."""
        self._ask(lambda storage: storage.put_data(key, value))

    def put_if_empty(self, key: str, value: bytes) -> bool:
        """Store a value unless there is one, in one step; whether it was stored."""
        return bool(self._ask(lambda storage: storage.put_if_empty(key, value)))

    def get(self, *keys: str) -> dict[str, bytes]:
        """The values that there are."""
        found = self._ask(lambda storage: storage.peek_many(list(keys)))
        return {_text(key): bytes(value) for key, value in found.items()}

    def all(self) -> dict[str, bytes]:
        """Every stored value."""
        found = self._ask(lambda storage: storage.result_items())
        return {_text(key): bytes(value) for key, value in found.items()}

    def remove(self, *keys: str) -> None:
        """Forget values."""
        self._ask(lambda storage: [storage.delete_data(key) for key in keys])

    def close(self) -> None:
        """Close the file."""
        if self._storage is not None:
            self._storage.close()

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        storage = self.huey and self._storage
        try:
            return question(storage) if self._link is None else self._link.ask(lambda _: question(storage))
        except (RedisAwayError, sqlite3.Error) as error:
            raise JobsUnavailableError(f"the store of jobs does not answer: {error}") from error


class _PatientStorage:
    """Storage of a consumer that finds nothing while Redis is away; the link has said so already."""

    def __init__(self, queue: JobQueue, storage: Any) -> None:
        self._queue = queue
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def dequeue(self) -> Any:
        try:
            return self._queue.dequeue()
        except JobsUnavailableError:
            return None

    def peek_many(self, keys: list[str]) -> dict[str, bytes]:
        try:
            return self._queue.get(*keys)
        except JobsUnavailableError:
            return {}

    def delete_data(self, key: str) -> bool:
        with suppress(JobsUnavailableError):
            self._queue.remove(key)
        return False

    def read_schedule(self, timestamp: Any) -> list[bytes]:
        del timestamp  # nothing is ever scheduled
        return []


class _JsonSerializer:
    """Tickets as JSON: what comes out of a store must not be able to run code, as pickles are."""

    def serialize(self, message: Any) -> bytes:
        return json.dumps(message._asdict()).encode()

    def deserialize(self, stored: bytes) -> Any:
        fields = json.loads(bytes(stored))
        return Message(**{**fields, "args": tuple(fields["args"])})


def _open_huey(path: Path, link: RedisLink | None) -> Any:
    options: dict[str, Any] = {"results": False, "serializer": _JsonSerializer()}
    if link is not None:
        pool = link.client.connection_pool
        return RedisHuey(_NAME, connection_pool=pool, blocking=False, **options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteHuey(_NAME, filename=str(path), fsync=True, strict_fifo=True, **options)
    except (OSError, sqlite3.Error) as error:
        raise JobsUnavailableError(
            f"jobs cannot be kept in '{path}': {error}; a server that only answers searches "
            "needs none: set VICINAL_RUN_JOBS=false"
        ) from error


def _nobody_runs(job_id: str, attempt: int) -> None:
    raise JobsUnavailableError(f"attempt {attempt} at job '{job_id}' came to a process without a worker")


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()
