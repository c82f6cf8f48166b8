"""Worker: takes jobs from the queue, in threads of this process, and revives those whose worker died."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.runner import JobKind, JobRunner
from vicinal.service.jobs.store import JobStore

logger = logging.getLogger(__name__)
# Missed heartbeats after which a worker counts as dead.
_MISSED_BEATS = 4
# Between two looks into a queue that is empty: each pause is longer than the one before.
_SHORTEST_PAUSE, _LONGEST_PAUSE, _LONGER = 0.1, 1.0, 1.15


class JobWorker:
    """Works on jobs from `start` to `stop`; also a context."""

    def __init__(
        self,
        store: JobStore,
        kinds: Mapping[str, JobKind],
        *,
        threads: int = 1,
        heartbeat_seconds: float = 5.0,
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._seconds = heartbeat_seconds
        self._recovery = Recovery(store, patience=_MISSED_BEATS * heartbeat_seconds)
        self._queue = store.queue
        self._runner = JobRunner(
            store, kinds, worker=self.name, heartbeat_seconds=heartbeat_seconds, stopping=self._stopping
        )
        self._queue.open()
        tasks = [self._recover, *[self._work] * threads]
        self._threads = [threading.Thread(target=one, name="job worker", daemon=True) for one in tasks]

    def start(self) -> None:
        """Begin to take jobs."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take no more jobs; one under way stops after its batch and waits for the next worker."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        pause = _SHORTEST_PAUSE
        while not self._stopping.is_set():
            ticket = None
            try:
                # A store that does not answer is logged already, and counts as empty.
                with suppress(JobsUnavailableError):
                    ticket = self._queue.dequeue()
                if ticket is not None:
                    self._runner.run(*ticket)
            except Exception:
                logger.exception("an attempt at a job ended unexpectedly")
            if ticket is not None:
                pause = _SHORTEST_PAUSE
            elif not self._stopping.wait(pause):
                pause = min(_LONGER * pause, _LONGEST_PAUSE)

    def _recover(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._recovery.look()


@dataclass
class Recovery:
    """Watches every unfinished job for signs of life, by its own clock alone, as machines' clocks differ."""

    store: JobStore
    _: KW_ONLY
    patience: float
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, tuple[tuple[object, ...], float]] = field(default_factory=dict, init=False)

    def look(self) -> list[str]:
        """Look once, and put every job back into the queue that nobody works on."""
        try:
            unfinished = [job for job in self.store.all() if not job.is_final]
            waiting = {job_id for job_id, _ in self.store.queue.waiting()} if unfinished else set()
            revived = [job for job in unfinished if self._is_dead(job) and job.id not in waiting]
            for job in revived:
                self._revive(job)
        except JobsUnavailableError:
            # Nobody could leave a sign either: all patience starts anew.
            self._seen.clear()
            return []
        ids = {job.id for job in unfinished}
        self._seen = {job_id: seen for job_id, seen in self._seen.items() if job_id in ids}
        return [job.id for job in revived]

    def _is_dead(self, job: Job) -> bool:
        signs, now = self.store.signs_of_life(job), self.clock()
        last_signs, since = self._seen.get(job.id, ((), now))
        if signs != last_signs:
            self._seen[job.id] = (signs, now)
            return False
        return now - since > self.patience

    def _revive(self, job: Job) -> None:
        attempt = self.store.n_claims(job) + 1
        logger.warning("nobody works on job %s any more: it is queued again, attempt %d", job.id, attempt)
        self.store.queue.enqueue(job.id, attempt)
        self._seen.pop(job.id, None)
