"""Runner: makes one attempt at a job, from the claim to the last word."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

from vicinal.models.errors import in_one_line
from vicinal.service.errors import JobNotFoundError, JobStoppedError, JobsUnavailableError, RequestError
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore
from vicinal.service.problem_types import ERRORS, problem_members, problem_type

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES = 1.0


class JobKind(Protocol):
    """The work of jobs of one kind."""

    def run(self, context: JobContext) -> dict[str, Any]:
        """Do it, going on where an earlier attempt was; `JobStoppedError` where it must stop."""

    def clean(self, job: Job) -> None:
        """Remove what was kept for another attempt; there will be none, unless a cancelled job is resumed."""


class JobRunner:
    """Makes attempts at jobs."""

    def __init__(
        self,
        store: JobStore,
        kinds: Mapping[str, JobKind],
        *,
        worker: str,
        heartbeat_seconds: float,
        stopping: threading.Event,
    ) -> None:
        self.store = store
        self.kinds = kinds
        self.worker = worker
        self.heartbeat_seconds = heartbeat_seconds
        self.stopping = stopping

    def run(self, job_id: str, attempt: int) -> None:
        """Make an attempt, unless another worker makes it or nothing is left to do."""
        try:
            self._run(job_id, attempt)
        except JobsUnavailableError as error:
            logger.warning("attempt %d at job %s is given up: %s", attempt, job_id, error)

    def _run(self, job_id: str, attempt: int) -> None:
        job = self._claimed(job_id, attempt)
        if job is None:
            return
        with self._beating(job):
            begun = self.store.save(
                job.model_copy(
                    update={
                        "state": "running",
                        "attempt": attempt,
                        "worker": self.worker,
                        "started_at": job.started_at or datetime.now(UTC),
                    }
                )
            )
            self._attempt(JobContext(begun, self.store, self.stopping))

    @contextmanager
    def _beating(self, job: Job) -> Iterator[None]:
        """Leave signs of life from a thread of its own, so that a long step does not look like death."""
        over = threading.Event()

        def beat() -> None:
            for number in count(1):
                # Without a store nobody watches either.
                with suppress(JobsUnavailableError):
                    self.store.beat(job.id, f"{self.worker} {number}")
                if over.wait(self.heartbeat_seconds):
                    return

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _claimed(self, job_id: str, attempt: int) -> Job | None:
        try:
            job = self.store.get(job_id)
            if job.state == "cancelled":
                # It was cancelled before anybody began: what came with the request still lies there.
                self._clean(job)
            if job.is_final or not self.store.claim(job_id, attempt, self.worker):
                return None
            job = self.store.get(job_id)
        except JobNotFoundError:
            return None
        if self.store.is_overtaken(job_id, attempt):
            return None
        if self.store.is_cancel_requested(job_id):
            self._end(job, {"state": "cancelled"})
            return None
        holder = self.store.reserve(job)
        if holder != job.id:
            self._end(job, {"state": "failed", "problem": f"job '{holder}' works on the gallery"})
            return None
        return job

    def _attempt(self, context: JobContext) -> None:
        try:
            result = self._kind(context.job).run(context)
            self._end(context.job, {"state": "succeeded", "result": result, "problem": None})
        except JobStoppedError as stop:
            self._stopped(context.job, stop)
        except (*ERRORS, OSError) as error:
            self._end(
                context.job,
                {
                    "state": "failed",
                    "problem": in_one_line(error),
                    "problem_type": problem_type(error),
                    "problem_members": problem_members(error),
                },
            )
        except Exception as error:
            logger.exception("job %s failed unexpectedly", context.job.id)
            problem = "an unexpected error; the worker's log has the details"
            self._end(
                context.job, {"state": "failed", "problem": problem, "problem_type": problem_type(error)}
            )

    def _stopped(self, job: Job, stop: JobStoppedError) -> None:
        if stop.why == "cancelled":
            self._end(job, {"state": "cancelled"})
        elif stop.why == "interrupted":
            self.store.save(job.model_copy(update={"state": "queued"}))
            self.store.queue.enqueue(job.id, job.attempt + 1)
        else:
            # The record is another worker's now.
            logger.warning("attempt %d at job %s leaves it to another worker", job.attempt, job.id)

    def _end(self, job: Job, fields: dict[str, Any]) -> None:
        """Clean up and have the last word, also when the store comes back only later."""
        # Whoever reads the last word finds nothing left, and may begin the next job at once.
        ended = job.model_copy(update=fields)
        self._clean(ended)
        while True:
            try:
                self.store.finish(ended)
                return
            except JobsUnavailableError:
                if self.stopping.wait(_SECONDS_BETWEEN_TRIES):
                    # Another worker finds the job with its work done.
                    raise

    def _clean(self, job: Job) -> None:
        if job.kind in self.kinds:
            self.kinds[job.kind].clean(job)

    def _kind(self, job: Job) -> JobKind:
        try:
            return self.kinds[job.kind]
        except KeyError as error:
            raise RequestError(f"this worker knows no jobs of kind '{job.kind}'") from error
