"""Worker: takes jobs, in threads of this process, those too whose worker died."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from vicinal.indexer.errors import StorageError
from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.runner import JobKind, JobRunner
from vicinal.service.jobs.store import JobStore

logger = logging.getLogger(__name__)
# Missed heartbeats after which a worker counts as dead.
_MISSED_BEATS = 4
# Between two looks where no job waits.
_PAUSE = 0.5


class JobWorker:
    """Works on jobs while entered as a context; one under way at the end stops after its batch."""

    def __init__(
        self,
        store: JobStore,
        kinds: Mapping[str, JobKind],
        *,
        threads: int = 1,
        heartbeat_seconds: float = 5.0,
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._store, self._stopping = store, threading.Event()
        self._lease = _MISSED_BEATS * heartbeat_seconds
        self._runner = JobRunner(
            store,
            kinds,
            heartbeat_seconds=heartbeat_seconds,
            lease_seconds=self._lease,
            stopping=self._stopping,
        )
        problem = store.look()
        # One that does not answer yet is asked again later.
        if problem is not None and not isinstance(problem.__cause__, StorageError):
            raise problem
        self._threads = [
            threading.Thread(target=self._work, name="job worker", daemon=True) for _ in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def take(self) -> bool:
        """Take a job and make an attempt at it; whether there was one."""
        job = None
        try:
            # A store that does not answer is logged already, and counts as empty.
            with suppress(JobsUnavailableError):
                job = self._store.claim(self.name, self._lease)
            if job is not None:
                self._runner.run(job)
        except Exception:
            logger.exception("an attempt at a job ended unexpectedly")
        return job is not None

    def _work(self) -> None:
        while not self._stopping.is_set():
            if not self.take():
                self._stopping.wait(_PAUSE)
