"""Heartbeat: signs of life of a worker, as long as it works on a job."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore

__all__ = ["Heartbeat"]


class Heartbeat:
    """Leaves signs of life from a thread of its own, so that a long step does not look like death.

    Args:
        store: Store of the jobs.
        job: The job that is worked on.
        worker: Who works on it.
        seconds: Between two signs.
    """

    def __init__(self, store: JobStore, job: Job, worker: str, seconds: float) -> None:
        self._store = store
        self._job = job
        self._worker = worker
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(self._seconds if count else 0.0):
            count += 1
            # Without a store nobody watches either.
            with suppress(JobsUnavailableError):
                self._store.beat(self._job.id, f"{self._worker} {count}")
