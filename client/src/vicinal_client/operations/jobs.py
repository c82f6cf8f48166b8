"""Calls about jobs: begin a re-index, see how far a job is, wait for it, cancel and resume it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from vicinal_client.errors import JobFailedError, JobUnfinishedError
from vicinal_client.models import Job, JobList
from vicinal_client.operations.calls import Calls, admin_path, operation
from vicinal_client.options import ReindexOptions
from vicinal_client.requests import given, path_of
from vicinal_client.retries import Pause, Steps

__all__ = ["JobCalls"]


class JobCalls(Calls):
    """Jobs."""

    @operation
    def reindex_gallery(self, /, gallery: str, **options: Unpack[ReindexOptions]) -> Steps[Job]:
        """Make a new version while the old one is searched, in a job.

        Args:
            gallery: Name of the gallery.
            options: See `ReindexOptions`: source, bundle, index, activate and others.
        """
        return (yield from self._start(admin_path(gallery, "reindex"), given(**options)))

    @operation
    def list_jobs(
        self, *, gallery: str | None = None, state: str | None = None, size: int | None = None
    ) -> Steps[JobList]:
        """Jobs, newest first, of one gallery or in one state."""
        params = given(gallery=gallery, state=state, size=size)
        return (yield from self._ask("GET", path_of("jobs"), JobList, params=params))

    @operation
    def get_job(self, job_id: str) -> Steps[Job]:
        """Read a job: its state, counts, rate, time left and the first files that could not be used."""
        return (yield from self._ask("GET", path_of("jobs", job_id), Job))

    @operation
    def cancel_job(self, job_id: str) -> Steps[Job]:
        """Cancel a job: it stops after the batch under way, and nothing of it is searched."""
        return (yield from self._ask("DELETE", path_of("jobs", job_id), Job, repeatable=True))

    @operation
    def resume_job(self, job_id: str) -> Steps[Job]:
        """Go on with a re-index that was cancelled, after its last finished batch."""
        return (yield from self._ask("POST", path_of("jobs", job_id, "resume"), Job))

    @operation
    def wait_for_job(
        self,
        job: Job | str,
        *,
        every: float = 1.0,
        seconds: float | None = None,
        on_progress: Callable[[Job], object] | None = None,
    ) -> Steps[Job]:
        """Wait until a job has a result.

        It is asked for again and again, so that a proxy that holds streams back, or a server that is
        restarted, is no hindrance.

        Args:
            job: The job, or its id.
            every: Seconds between two looks.
            seconds: Longest wait; None for any.
            on_progress: Called with the job whenever it has changed, the last time when it has ended.

        Raises:
            JobFailedError: It failed or was cancelled.
            JobUnfinishedError: It has not ended in that time; it goes on.
        """
        job_id, seen = (job, -1) if isinstance(job, str) else (job.id, -1)
        began = self.retries.clock()
        while True:
            now = yield from self._ask("GET", path_of("jobs", job_id), Job)
            if now.revision > seen:
                seen = now.revision
                if on_progress is not None:
                    on_progress(now)
            if now.state == "succeeded":
                return now
            if now.is_final:
                reason = f": {now.problem}" if now.problem else ""
                raise JobFailedError(now, f"{'was ' if now.state == 'cancelled' else ''}{now.state}{reason}")
            if seconds is not None and self.retries.clock() - began + every > seconds:
                raise JobUnfinishedError(now, f"is {now.state} after {seconds:.0f} s")
            yield Pause(every)
