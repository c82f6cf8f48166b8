"""Jobs: what is under way, how far it is, and how to stop it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse

from vicinal.service.http.bodies.jobs import JobListBody
from vicinal.service.http.requests import JobsDependency
from vicinal.service.jobs.events import job_events
from vicinal.service.jobs.records import Job, JobState

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events `progress` and `end`.", "content": {"text/event-stream": {}}},
    204: {"description": "The client has seen the end: it need not come again."},
}


@router.get("")
def list_jobs(
    jobs: JobsDependency,
    gallery: Annotated[str | None, Query(description="Only jobs on this gallery.")] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JobListBody:
    """Jobs, newest first; finished ones are kept for a while."""
    found = [
        job for job in jobs.all() if gallery in (None, job.gallery) and (state is None or job.state == state)
    ]
    return JobListBody(jobs=found[:size])


@router.get("/{job_id}")
def get_job(job_id: str, jobs: JobsDependency) -> Job:
    """One job: its state, counts, rate, time left and the first files that could not be used."""
    return jobs.get(job_id)


@router.delete("/{job_id}", status_code=202)
def cancel_job(job_id: str, jobs: JobsDependency) -> Job:
    """Cancel a job: it stops after the batch under way, and nothing of it is searched."""
    return jobs.cancel(job_id)


@router.get("/{job_id}/events", response_class=Response, responses=_EVENTS)
async def follow_job(
    job_id: str,
    jobs: JobsDependency,
    request: Request,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event that the client has seen.")
    ] = None,
) -> Response:
    """The state of a job whenever it changes, until it ends."""
    job = await run_in_threadpool(jobs.get, job_id)
    seen = int(last_event_id) if last_event_id and last_event_id.isdecimal() else 0
    if job.is_final and job.revision <= seen:
        return Response(status_code=204)
    events = job_events(jobs, job, stopping=request.app.state.stopping, after=seen)
    # Caches and proxies must not hold events back.
    return EventSourceResponse(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
