"""Jobs: kinds of them, each made by an operation, and the process that works on them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from vicinal.indexer.errors import GalleryBusyError, HomeError
from vicinal.service.database import open_database
from vicinal.service.errors import JobStoppedError, JobsUnavailableError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.home import HomeFollower, bring_up_to_date, open_home
from vicinal.service.jobs.records import Job, JobFailure, JobProgress
from vicinal.service.jobs.runner import JobContext
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.operations import (
    Operation,
    Progress,
    calibrate,
    check,
    compare,
    duplicates,
    reindex,
)
from vicinal.service.operations.place import Place
from vicinal.service.operations.readable_sources import JobSources
from vicinal.service.process import prepare_process
from vicinal.service.settings import Settings
from vicinal.service.surfaces.query_uploads import QueryUploads

# All that a worker can do.
OPERATIONS: tuple[Operation[Any, Any], ...] = (
    calibrate.OPERATION,
    check.OPERATION,
    compare.OPERATION,
    duplicates.OPERATION,
    reindex.OPERATION,
)
_SHOWN_FAILURES = 20
# Stands in the request of a job beside the operation's own fields.
IS_UPLOAD = "is_upload"
_LOOK_SECONDS = 0.5
# The whole list of what could not be used is written anew each time.
_SECONDS_BETWEEN_LISTS = 5.0


class OperationJob:
    """Runs an operation in jobs."""

    def __init__(self, operation: Operation[Any, Any], bundles: ServedBundles) -> None:
        self.operation = operation
        self.uploads = QueryUploads(bundles.settings)
        self._bundles = bundles

    def place(self, job: Job) -> Place:
        """Place of a job."""
        return Place(
            self._bundles,
            self._bundles.gallery(job.gallery, is_new=True),
            JobSources.of(self._bundles.settings, job.folders),
            job.id,
            is_job=True,
        )

    def run(self, context: JobContext) -> dict[str, Any]:
        """Run it; an attempt after the death of a worker begins anew, or goes on, as the operation does."""
        try:
            bring_up_to_date(self._bundles.settings.data_dir)
        except HomeError as error:
            # Another attempt is made, here or through a replica that reaches the home.
            raise JobStoppedError("overtaken") from error
        place, fields = self.place(context.job), dict(context.job.request)
        if fields.pop(IS_UPLOAD, False):
            place.sent = self.uploads.uploaded(context.job)
        request = self.operation.request.model_validate(fields)
        progress = _Reported(context)
        try:
            made = self.operation.run(place, request, progress)
        except (GalleryBusyError, HomeError) as error:
            if not self.operation.goes_on:
                raise
            # The worker before this one is not dead yet, or the home is away; another attempt is made.
            raise JobStoppedError("overtaken") from error
        finally:
            progress.keep_failures()
        if self.operation.keep is not None:
            # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
            progress("keep", 0, 1)
            self.operation.keep(place, made)
        return self.operation.told(place, made)

    def clean(self, job: Job) -> None:
        """Remove what was kept for another attempt, and the queries that were sent."""
        self.operation.clean(self.place(job), job)
        self.uploads.clean(job)


class _Reported(Progress):
    """Progress that stands in the job's record."""

    def __init__(self, context: JobContext) -> None:
        super().__init__()
        self._context = context
        self._n_kept, self._kept_at = 0, time.monotonic()

    def __call__(self, stage: str, done: int, total: int, _note: str = "", /) -> None:
        self._context.report(
            JobProgress(
                stage=stage,
                stage_done=done,
                stage_total=total,
                total=self.total,
                done=self.done,
                failed=len(self.failures),
                skipped=self.skipped,
                failures=_told(self.failures[:_SHOWN_FAILURES]),
            )
        )
        if time.monotonic() - self._kept_at >= _SECONDS_BETWEEN_LISTS:
            self.keep_failures()

    def planned(self, plan: str) -> None:
        """Tell it as a line of the job's log; the record has the time left of every stage."""
        self._context.log.add(plan)

    def keep_failures(self) -> None:
        """Keep all files that could not be used, where there are more than at the last time."""
        self._kept_at = time.monotonic()
        if len(self.failures) == self._n_kept:
            return
        # The work does not need the list, as it does not need the record.
        with suppress(JobsUnavailableError):
            told = [one.model_dump() for one in _told(self.failures)]
            self._context.store.keep_list(self._context.job.id, "failures", told)
            self._n_kept = len(self.failures)


def _told(failures: Sequence[Any]) -> tuple[JobFailure, ...]:
    return tuple(JobFailure.model_validate(one) for one in failures)


def job_kinds(bundles: ServedBundles) -> dict[str, OperationJob]:
    """Jobs of each kind over the same bundles, by the names that job records carry."""
    return {one.name: OperationJob(one, bundles) for one in OPERATIONS}


def work_until_stopped(
    settings: Settings, *, threads: int = 1, on_start: Callable[[str, str], None] | None = None
) -> None:
    """Work on jobs until Ctrl-C or a termination signal; one under way is left to another worker."""
    prepare_process()
    open_database(settings)
    link = settings.open_link()
    mirror = open_home(settings)
    jobs = JobStore(settings.data_dir)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    kinds = job_kinds(ServedBundles(settings, link))
    with (
        nullcontext() if mirror is None else HomeFollower(mirror),
        JobWorker(jobs, kinds, threads=threads, heartbeat_seconds=settings.job_heartbeat_seconds) as started,
    ):
        if on_start is not None:
            on_start(started.name, jobs.place)
        # The system may hand a signal to any thread, and only this one answers it, once it runs.
        while not stop.wait(_LOOK_SECONDS):
            pass
