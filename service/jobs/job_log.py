"""Log of a job: when it began, each stage, what its attempt warned of, and how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.store import JobStore

MOST_LINES = 500
_LONGEST_LINE = 2_000
_LISTENED = logging.getLogger("vicinal")


class JobLogLine(BaseModel, frozen=True):
    """Line of a job's log.

    Attributes:
        level: `info`, what it did; `warning` and `error` may name files and processes of the server.
    """

    at: datetime
    level: Literal["info", "warning", "error"]
    text: str


class JobLog(logging.Handler):
    """Takes lines of one attempt at a job, and keeps the last 500 of all its attempts in the store."""

    def __init__(self, store: JobStore, job_id: str) -> None:
        super().__init__(logging.WARNING)
        self._store, self._job_id = store, job_id
        self._thread: int | None = None
        self._new: list[JobLogLine] = []

    def add(self, text: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """Take a line; it is kept with the next `keep`."""
        self._new.append(JobLogLine(at=datetime.now(UTC), level=level, text=text[:_LONGEST_LINE]))
        del self._new[:-MOST_LINES]

    def emit(self, record: logging.LogRecord) -> None:
        """Take what the thread of the attempt warns of."""
        if record.thread == self._thread:
            is_error = record.levelno >= logging.ERROR
            self.add(" ".join(record.getMessage().split()), "error" if is_error else "warning")

    def keep(self) -> None:
        """Write what is new; the work does not need it, so a store that is away is passed over."""
        if not self._new:
            return
        with suppress(JobsUnavailableError):
            kept = self._store.list_of(self._job_id, "log")
            kept += [one.model_dump(mode="json") for one in self._new]
            self._store.keep_list(self._job_id, "log", kept[-MOST_LINES:])
            self._new.clear()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take what this thread warns of meanwhile, and keep all at the end."""
        self._thread = threading.get_ident()
        _LISTENED.addHandler(self)
        try:
            yield
        finally:
            _LISTENED.removeHandler(self)
            self.keep()
