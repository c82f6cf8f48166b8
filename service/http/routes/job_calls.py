"""Calls that begin a job: what cannot work is refused before it waits in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

from fastapi import Request, Response

from vicinal.service.errors import RequestError
from vicinal.service.http.bodies.fields import SentEmbeddings
from vicinal.service.http.state import State
from vicinal.service.jobs import Job, JobKind
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.operations import Operation
from vicinal.service.request_fields import QuerySource
from vicinal.service.request_fields import Request as Asked
from vicinal.service.surfaces.jobs import IS_UPLOAD
from vicinal.service.tasks.query_uploads import QueryUploads


class Sent(NamedTuple):
    """Labelled queries that came with a call."""

    images: Sequence[bytes] = ()
    embeddings: Sequence[Sequence[float]] | None = None
    labels: Sequence[str] | None = None

    @classmethod
    def of(cls, body: SentEmbeddings, *, source: str | None) -> Sent:
        """Those of a body.

        Raises:
            RequestError: There are two kinds of them, or embeddings without labels.
        """
        if body.embeddings is not None and source is not None:
            raise RequestError("give queries or embeddings, not both")
        if (body.embeddings is None) != (body.labels is None):
            raise RequestError("embeddings and labels go together: give both")
        return cls(embeddings=body.embeddings, labels=body.labels)


_NOTHING = Sent()


class _KeepsQueries(JobKind, Protocol):
    uploads: QueryUploads


def begin_job(
    request: Request,
    response: Response,
    state: State,
    operation: Operation[Any, Any],
    gallery: str,
    asked: Asked,
    sent: Sent = _NOTHING,
    *,
    leave_out: Sequence[str] = (),
) -> Job:
    """Let an operation wait in the queue; another job on the gallery: 409.

    Args:
        leave_out: Fields of the request that this call does not have.
    """
    matcher, kind = state.galleries.matcher(gallery), state.kinds.operations[operation.name]
    name, fields = matcher.gallery.name, asked.model_dump(mode="json", exclude=set(leave_out))
    if isinstance(asked, QuerySource):
        fields[IS_UPLOAD] = sent.labels is not None
    job = state.job_for(request, operation.name, name, fields)
    place = kind.place(job)
    place.find_matcher, place.sent_labels = (lambda: matcher), sent.labels
    operation.require(place, asked)
    return enqueue(state, kind, matcher, job, sent, response)


def enqueue(
    state: State, kind: _KeepsQueries, matcher: Matcher, job: Job, sent: Sent, response: Response
) -> Job:
    """Keep the queries that came with a call, and let its job wait."""
    with ExitStack() as undo:
        undo.callback(kind.clean, job)
        if sent.images:
            kind.uploads.keep_images(job, sent.images, sent.labels or [])
        elif sent.embeddings is not None:
            dim = matcher.snapshot.manifest.dim
            kind.uploads.keep_embeddings(job, sent.embeddings, sent.labels or [], dim=dim)
        created = state.jobs.create(job)
        undo.pop_all()
    response.headers["Location"] = f"/v1/jobs/{created.id}"
    return created
