"""Calls that begin a job: what cannot work is refused before it waits in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from fastapi import Request, Response

from vicinal.service.errors import RequestError
from vicinal.service.http.bodies.fields import SentEmbeddings
from vicinal.service.http.state import State
from vicinal.service.jobs.records import Job
from vicinal.service.operations import Operation
from vicinal.service.request_fields import QuerySource
from vicinal.service.request_fields import Request as Asked
from vicinal.service.surfaces.jobs import IS_UPLOAD


class Sent(NamedTuple):
    """Labelled queries that came with a call."""

    images: Sequence[bytes] = ()
    embeddings: Sequence[Sequence[float]] | None = None
    labels: Sequence[str] | None = None

    @classmethod
    def of(cls, body: SentEmbeddings, *, source: str | None) -> Sent:
        """Take those of a body."""
        if body.embeddings is not None and source is not None:
            raise RequestError("give queries or embeddings, not both")
        if (body.embeddings is None) != (body.labels is None):
            raise RequestError("embeddings and labels go together: give both")
        return cls(embeddings=body.embeddings, labels=body.labels)


_NOTHING = Sent()


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
    """Let an operation, without the fields `leave_out`, wait in the queue; another job there: 409."""
    opened, kind = state.galleries.gallery(gallery), state.kinds[operation.name]
    fields = asked.model_dump(mode="json", exclude=set(leave_out))
    reads: list[str | None] = []
    if isinstance(asked, QuerySource):
        fields[IS_UPLOAD] = sent.labels is not None
        reads = [asked.queries]
    job = state.job_for(request, operation.name, opened.name, fields, reads=reads)
    place = kind.place(job)
    place.find_matcher, place.sent_labels = partial(state.galleries.matcher, opened.name), sent.labels
    operation.require(place, asked)
    with ExitStack() as undo:
        undo.callback(kind.clean, job)
        if sent.images:
            kind.uploads.keep_images(job, sent.images, sent.labels or [])
        elif sent.embeddings is not None:
            dim = place.matcher.snapshot.manifest.dim
            kind.uploads.keep_embeddings(job, sent.embeddings, sent.labels or [], dim=dim)
        created = state.jobs.create(job)
        undo.pop_all()
    response.headers["Location"] = f"/v1/jobs/{created.id}"
    return created
