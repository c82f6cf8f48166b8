"""Context of a running job: where it tells how far it is, and learns that it must stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vicinal.service.errors import JobStoppedError, JobsUnavailableError
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.jobs.store import JobStore

# Between two looks at the store: often enough for people, seldom enough for the store.
_SECONDS_BETWEEN_LOOKS = 0.5


class JobContext:
    """Attempt at a job."""

    def __init__(
        self,
        job: Job,
        store: JobStore,
        stopping: threading.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._store = store
        self._stopping = stopping
        self._clock = clock
        self._stage: str | None = None
        self._stage_started = (0.0, 0)
        self._last_look = -float("inf")

    @property
    def request(self) -> dict[str, Any]:
        """The request."""
        return self.job.request

    def report(self, progress: JobProgress) -> None:
        """Tell how far the job is after every batch, and learn that it must stop, by a `JobStoppedError`."""
        if self._stopping.is_set():
            raise JobStoppedError("interrupted")
        now = self._clock()
        if progress.stage != self._stage:
            self._stage, self._stage_started = progress.stage, (now, progress.stage_done)
        elif now - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return
        self._last_look = now
        # The work does not need the store: while that is away, nobody hears how far it is.
        with suppress(JobsUnavailableError):
            self._look()
            timed = self._with_rate(progress, now)
            self.job = self._store.save(self.job.model_copy(update={"progress": timed}))

    def _look(self) -> None:
        if self._store.is_overtaken(self.job.id, self.job.attempt):
            raise JobStoppedError("overtaken")
        if self._store.is_cancel_requested(self.job.id):
            raise JobStoppedError("cancelled")

    def _with_rate(self, progress: JobProgress, now: float) -> JobProgress:
        started, done_before = self._stage_started
        done, seconds = progress.stage_done - done_before, now - started
        if done <= 0 or seconds <= 0:
            return progress
        rate = done / seconds
        left = (progress.stage_total - progress.stage_done) / rate
        return progress.model_copy(update={"rate": round(rate, 3), "seconds_left": round(left, 1)})
