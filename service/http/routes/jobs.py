"""Jobs: begin a re-index, see what is under way and how far it is, and stop it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse

from vicinal.service.errors import JobNotFoundError, KeyStoreError, RequestError
from vicinal.service.http.access import call_of
from vicinal.service.http.gate import AdminRoute, Routes, key_in, may_see
from vicinal.service.http.request_bodies import SentEmbeddings
from vicinal.service.http.state import State, StateDependency
from vicinal.service.jobs.events import job_events
from vicinal.service.jobs.job_log import JobLogLine
from vicinal.service.jobs.records import Job, JobFailure, JobState, new_job
from vicinal.service.keys import Keyring
from vicinal.service.operations import Operation, reindex
from vicinal.service.operations.readable_sources import JobSources
from vicinal.service.operations.reindex import ReindexRequest
from vicinal.service.problem_types import PREFIX, told_to_some
from vicinal.service.request_fields import Body, RequestFields
from vicinal.service.surfaces.jobs import IS_UPLOAD

Row = TypeVar("Row")
After = Annotated[int, Query(ge=0, description="`next` of the page before.")]
PageSize = Annotated[int, Query(ge=1, le=1000)]

router = Routes(prefix="/v1", tags=["jobs"], route_class=AdminRoute)

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events `progress` and `end`.", "content": {"text/event-stream": {}}},
    204: {"description": "The client has seen the end: it need not come again."},
}


class JobListBody(Body):
    """Jobs, newest first."""

    jobs: list[Job]


class JobFailuresBody(Body):
    """Page of the files that a job could not use, in the order in which it met them.

    Attributes:
        next: Number after which the next page begins, as `after`; None on the last.
        n_kept: How many are kept, at most 10,000; the job's own count is `progress.failed`.
    """

    failures: tuple[JobFailure, ...]
    next: int | None
    n_kept: int


class JobLogBody(Body):
    """Lines of a job's log, oldest first: at most the last 500.

    Attributes:
        lines: When it began, each stage, warnings, and how it ended, of all its attempts.
    """

    lines: tuple[JobLogLine, ...]


def page_of(rows: Sequence[Row], after: int, size: int) -> tuple[tuple[Row, ...], int | None]:
    """Page of rows, and the number after which the next one begins; None on the last."""
    end = after + size
    return tuple(rows[after:end]), end if end < len(rows) else None


def begin_job(
    request: Request,
    response: Response,
    state: State,
    operation: Operation[Any, Any],
    gallery: str,
    asked: RequestFields,
    *,
    images: Sequence[bytes] = (),
    leave_out: Sequence[str] = (),
    **more: Any,
) -> Job:
    """Let an operation, with `more` and without the fields `leave_out`, wait in the queue with the images or
    embeddings that were sent; another job on the gallery: 409.
    """
    opened, kind = state.galleries.gallery(gallery), state.kinds[operation.name]
    embeddings, labels, reads = None, None, list[str | None]()
    if isinstance(asked, SentEmbeddings):
        embeddings, labels, reads = asked.embeddings, asked.labels, [asked.queries]
        if embeddings is not None and asked.queries is not None:
            raise RequestError("give queries or embeddings, not both")
        if not images and (embeddings is None) != (labels is None):
            raise RequestError("embeddings and labels go together: give both")
        asked = operation.request(**asked.model_dump(exclude={"embeddings", "labels"}), **more)
    fields = asked.model_dump(mode="json", exclude=set(leave_out))
    if reads:
        fields[IS_UPLOAD] = labels is not None
    job = _new_job(request, state, operation.name, opened.name, fields, reads=reads)
    place = kind.place(job)
    place.find_matcher, place.sent_labels = partial(state.galleries.matcher, opened.name), labels
    operation.require(place, asked)
    with ExitStack() as undo:
        undo.callback(kind.clean, job)
        if images:
            kind.uploads.keep_images(job, images, labels or [])
        elif embeddings is not None:
            dim = place.matcher.snapshot.manifest.dim
            kind.uploads.keep_embeddings(job, embeddings, labels or [], dim=dim)
        created = state.jobs.create(job)
        undo.pop_all()
    response.headers["Location"] = f"/v1/jobs/{created.id}"
    return created


@router.post("/admin/galleries/{gallery}/reindex", status_code=202)
def reindex_gallery(
    gallery: str, body: ReindexRequest, request: Request, state: StateDependency, response: Response
) -> Job:
    """Make a new version from a source, with other settings or another bundle, while the old one is searched.

    Live changes made meanwhile are kept. Another job on the gallery: 409, with its id as `job`.
    """
    job = state.jobs.create(_reindex_job(gallery, body, request, state))
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def _new_job(
    request: Request,
    state: State,
    kind: str,
    gallery: str,
    body: dict[str, Any],
    *,
    reads: Iterable[str | None],
) -> Job:
    """A job with what the key of a call lets it read."""
    settings, grant = state.settings, call_of(request.scope).grant
    job = new_job(kind, gallery, body, None if grant is None else grant.folders)
    if job.folders is not None:
        sources = JobSources.of(settings, job.folders)
        for name in reads:
            if name is not None:
                sources.place(name)
    return job


def _reindex_job(gallery: str, body: ReindexRequest, request: Request, state: State) -> Job:
    reads = (body.source, body.comparison.queries)
    name, kind = reindex.OPERATION.name, state.kinds[reindex.OPERATION.name]
    job = _new_job(request, state, name, gallery, body.model_dump(), reads=reads)
    reindex.require(kind.place(job), body)
    return job


@router.get("/jobs")
def list_jobs(
    request: Request,
    state: StateDependency,
    gallery: Annotated[str | None, Query(description="Only jobs on this gallery.")] = None,
    job_state: Annotated[
        JobState | None, Query(alias="state", description="Only jobs in this state.")
    ] = None,
    size: PageSize = 100,
) -> JobListBody:
    """Jobs, newest first, of the galleries that the key is for; finished ones are kept for a while."""
    root = state.galleries.path
    name = gallery and state.settings.gallery_path(gallery).name
    found = [
        _shown_to(request, job)
        for job in state.jobs.all()
        if name in (None, job.gallery)
        and job_state in (None, job.state)
        and may_see(request, root, job.gallery)
    ]
    return JobListBody(jobs=found[:size])


@router.get("/jobs/{job_id}")
def get_job(job_id: str, request: Request, state: StateDependency) -> Job:
    """Read a job: its state, counts, rate, time left and the first files that could not be used."""
    return _seen_by(request, state, job_id)


@router.delete("/jobs/{job_id}", status_code=202)
def cancel_job(job_id: str, request: Request, state: StateDependency) -> Job:
    """Cancel a job: it stops after the batch under way, and nothing of it is searched.

    A re-index can be resumed.
    """
    _seen_by(request, state, job_id)
    job = state.jobs.cancel(job_id)
    if job.is_final and job.attempt == 0 and job.kind in state.kinds:
        # No worker takes it: what came with the request would stay.
        state.kinds[job.kind].clean(job)
    return _shown_to(request, job)


@router.post("/jobs/{job_id}/resume", status_code=202)
def resume_job(job_id: str, request: Request, state: StateDependency, response: Response) -> Job:
    """Go on with a re-index that was cancelled, after its last finished batch.

    What is finished is kept until anything else is indexed into the gallery; then it begins anew. Another job
    on the gallery: 409, with its id as `job`.
    """
    job = _seen_by(request, state, job_id)
    if job.kind != reindex.OPERATION.name:
        raise RequestError(f"a job of kind '{job.kind}' cannot be resumed: send its request again")
    again = _reindex_job(job.gallery, ReindexRequest.model_validate(job.request), request, state)
    if again.folders not in (None, job.folders):
        raise RequestError(f"job '{job_id}' was begun with another key: send its request again")
    response.headers["Location"] = f"/v1/jobs/{job_id}"
    return state.jobs.resume(job_id)


@router.get("/jobs/{job_id}/failures")
def get_job_failures(
    job_id: str,
    request: Request,
    state: StateDependency,
    after: After = 0,
    size: PageSize = 100,
) -> JobFailuresBody:
    """All files that a job could not use, by page; the job itself has the first 20."""
    job = _seen_by(request, state, job_id)
    kept = state.jobs.list_of(job.id, "failures")
    failures = [JobFailure.model_validate(one) for one in kept] or job.progress.failures
    page, further = page_of(failures, after, size)
    return JobFailuresBody(failures=page, next=further, n_kept=len(failures))


@router.get("/jobs/{job_id}/log")
def get_job_log(job_id: str, request: Request, state: StateDependency) -> JobLogBody:
    """Tell what a job did and warned of, by its lines; a key of some galleries gets the stages alone."""
    job = _seen_by(request, state, job_id)
    lines = (JobLogLine.model_validate(one) for one in state.jobs.list_of(job.id, "log"))
    in_full = call_of(request.scope).in_full
    return JobLogBody(lines=tuple(one for one in lines if in_full or one.level == "info"))


@router.get("/jobs/{job_id}/events", response_class=Response, responses=_EVENTS)
async def follow_job(
    job_id: str,
    request: Request,
    state: StateDependency,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event that the client has seen.")
    ] = None,
) -> Response:
    """The state of a job whenever it changes, until it ends."""
    job = await run_in_threadpool(_seen_by, request, state, job_id)
    seen = 0
    with suppress(ValueError):
        seen = int(last_event_id or 0)
    if job.is_final and job.revision <= seen:
        return Response(status_code=204)
    may_hear = partial(_still_holds, request, state.keyring)
    shown = partial(_shown_to, request)
    events = job_events(state.jobs, job, stopping=state.stopping, after=seen, may_hear=may_hear, shown=shown)
    # Caches and proxies must not hold events back.
    return EventSourceResponse(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


def _still_holds(request: Request, keyring: Keyring) -> bool:
    """Tell whether what let a call in would let it in now: its key is not revoked, over or another one."""
    if not keyring.is_asked_for:
        return True
    try:
        return keyring.find(key_in(request)) == call_of(request.scope).grant is not None
    except KeyStoreError:
        return False


def _seen_by(request: Request, state: State, job_id: str) -> Job:
    """A job as a key may see it, which it does not where it is not for its gallery."""
    job = state.jobs.get(job_id)
    if not may_see(request, state.galleries.path, job.gallery):
        raise JobNotFoundError(job.id)
    return _shown_to(request, job)


def _shown_to(request: Request, job: Job) -> Job:
    """A job, without the process that works on it and paths of the server for a key of some galleries."""
    if call_of(request.scope).in_full:
        return job
    kind = (job.problem_type or "").removeprefix(PREFIX)
    problem = None if job.problem is None else told_to_some(kind, job.problem)
    return job.model_copy(update={"worker": None, "problem": problem})
