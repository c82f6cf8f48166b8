"""Runner: makes one attempt at a job, from the claim to the last word."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from vicinal.models.errors import in_one_line
from vicinal.service.errors import JobStoppedError, JobsUnavailableError, RequestError
from vicinal.service.jobs.job_log import JobLog
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.jobs.store import JobStore
from vicinal.service.problem_types import ERRORS, problem_members, problem_type

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES = 1.0
# Between two looks at the store: often enough for people, seldom enough for the store.
_SECONDS_BETWEEN_LOOKS = 0.5


class JobKind(Protocol):
    """The work of jobs of one kind."""

    def run(self, context: JobContext) -> dict[str, Any]:
        """Do it, going on where an earlier attempt was; `JobStoppedError` where it must stop."""

    def clean(self, job: Job) -> None:
        """Remove what was kept for another attempt; there will be none, unless a cancelled job is resumed."""


@dataclass
class JobContext:
    """Attempt at a job, which tells here how far it is, and learns that it must stop."""

    job: Job
    store: JobStore
    stopping: threading.Event
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    _stage: str | None = field(default=None, init=False)
    _stage_started: tuple[float, int] = field(default=(0.0, 0), init=False)
    _last_look: float = field(default=-float("inf"), init=False)
    log: JobLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = JobLog(self.store, self.job.id)

    def report(self, progress: JobProgress) -> None:
        """Tell how far the job is after every batch, and learn that it must stop, by a `JobStoppedError`."""
        if self.stopping.is_set():
            raise JobStoppedError("interrupted")
        now = self.clock()
        if progress.stage != self._stage:
            self._stage, self._stage_started = progress.stage, (now, progress.stage_done)
            self.log.add(progress.stage or "")
        elif now - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return
        self._last_look = now
        # The work does not need the store: while that is away, nobody hears how far it is.
        with suppress(JobsUnavailableError):
            self.job = self.store.tell(self.job, progress=self._with_rate(progress, now))
            if self.job.cancel_requested:
                raise JobStoppedError("cancelled")
        self.log.keep()

    def _with_rate(self, progress: JobProgress, now: float) -> JobProgress:
        started, done_before = self._stage_started
        done, seconds = progress.stage_done - done_before, now - started
        if done <= 0 or seconds <= 0:
            return progress
        rate = done / seconds
        left = (progress.stage_total - progress.stage_done) / rate
        return progress.model_copy(update={"rate": round(rate, 3), "seconds_left": round(left, 1)})


@dataclass
class JobRunner:
    """Makes attempts at jobs."""

    store: JobStore
    kinds: Mapping[str, JobKind]
    _: KW_ONLY
    heartbeat_seconds: float
    lease_seconds: float
    stopping: threading.Event

    def run(self, job: Job) -> None:
        """Make an attempt at a job that was claimed."""
        try:
            if job.cancel_requested:
                self._end(job, state="cancelled")
                return
            with self._beating(job):
                context = JobContext(job, self.store, self.stopping)
                with context.log.listening():
                    self._attempt(context)
        except JobsUnavailableError as error:
            logger.warning("attempt %d at job %s is given up: %s", job.attempt, job.id, error)
        except JobStoppedError:
            # The record is another worker's now.
            logger.warning("attempt %d at job %s leaves it to another worker", job.attempt, job.id)

    @contextmanager
    def _beating(self, job: Job) -> Iterator[None]:
        """Leave signs of life from a thread of its own, so that a long step does not look like death."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.heartbeat_seconds):
                # Without a store nobody watches either.
                with suppress(JobsUnavailableError):
                    self.store.beat(job, self.lease_seconds)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _attempt(self, context: JobContext) -> None:
        kind = self.kinds.get(context.job.kind)
        try:
            if kind is None:
                raise RequestError(f"this worker knows no jobs of kind '{context.job.kind}'")
            context.log.add(f"attempt {context.job.attempt} begins")
            result = kind.run(context)
            self._last_line(context, "succeeded")
            self._end(context.job, state="succeeded", result=result, problem=None)
        except JobStoppedError as stop:
            self._last_line(context, stop.why)
            if stop.why == "overtaken":
                raise
            if stop.why == "cancelled":
                self._end(context.job, state="cancelled")
            else:
                self.store.tell(context.job, state="queued")
        except Exception as error:
            problem = in_one_line(error)
            if not isinstance(error, (*ERRORS, OSError)):
                logger.exception("job %s failed unexpectedly", context.job.id)
                problem = "an unexpected error; the worker's log has the details"
            self._last_line(context, "failed", problem)
            told = {"problem_type": problem_type(error), "problem_members": problem_members(error)}
            self._end(context.job, state="failed", problem=problem, **told)

    @staticmethod
    def _last_line(context: JobContext, ends: str, problem: str | None = None) -> None:
        # Whoever reads that a job is over finds its log whole.
        if problem is not None:
            context.log.add(problem, "error")
        context.log.add(ends)
        context.log.keep()

    def _end(self, job: Job, **fields: Any) -> None:
        """Clean up and have the last word, also when the store comes back only later."""
        # Whoever reads the last word finds nothing left, and may begin the next job at once.
        self._clean(job.model_copy(update=fields))
        while True:
            try:
                self.store.finish(job, **fields)
                return
            except JobsUnavailableError:
                if self.stopping.wait(_SECONDS_BETWEEN_TRIES):
                    # Another worker finds the job with its work done.
                    raise

    def _clean(self, job: Job) -> None:
        if job.kind in self.kinds:
            self.kinds[job.kind].clean(job)
