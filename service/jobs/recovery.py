"""Recovery: finds jobs whose worker died, and lets another attempt be made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore

logger = logging.getLogger(__name__)


class Recovery:
    """Watches every unfinished job for signs of life, by its own clock alone, as machines' clocks differ."""

    def __init__(
        self, store: JobStore, *, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._patience = patience
        self._clock = clock
        self._seen: dict[str, tuple[tuple[object, ...], float]] = {}

    def look(self) -> list[str]:
        """Look once, and put every job back into the queue that nobody works on."""
        try:
            unfinished = [job for job in self._store.all() if not job.is_final]
            waiting = {job_id for job_id, _ in self._store.queue.waiting()} if unfinished else set()
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
        signs, now = self._store.signs_of_life(job), self._clock()
        last_signs, since = self._seen.get(job.id, ((), now))
        if signs != last_signs:
            self._seen[job.id] = (signs, now)
            return False
        return now - since > self._patience

    def _revive(self, job: Job) -> None:
        attempt = self._store.n_claims(job) + 1
        logger.warning("nobody works on job %s any more: it is queued again, attempt %d", job.id, attempt)
        self._store.queue.enqueue(job.id, attempt)
        self._seen.pop(job.id, None)
