"""Search by image, embedding or item."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool

from vicinal.service.errors import RequestError
from vicinal.service.http.bodies.search import (
    BatchAnswerBody,
    BatchRequest,
    Query,
    SearchOptions,
    SearchRequest,
)
from vicinal.service.http.request_bodies import (
    FORM,
    JSON,
    body_schema,
    content_type,
    images_of,
    json_body,
    validated,
)
from vicinal.service.http.state import State, StateDependency
from vicinal.service.matcher.answers import Answer

__all__ = ["router"]

_BODY = body_schema(SearchOptions.model_json_schema()["properties"], several=False, json=SearchRequest)


async def _admit(state: StateDependency) -> AsyncIterator[None]:
    """Turns searches away when too many wait."""
    with state.admission.admitted():
        yield


router = APIRouter(prefix="/v1/galleries/{gallery}", tags=["search"], dependencies=[Depends(_admit)])


@router.post("/search", openapi_extra=_BODY)
async def search(gallery: str, request: Request, state: StateDependency) -> Answer:
    """Find the matches of one image, embedding or item, or learn that there is none."""
    options: SearchOptions
    if content_type(request, FORM, JSON) == FORM:
        image, options = await _from_form(request)
        query: dict[str, Any] = {"images": [image]}
    else:
        options = parsed = await json_body(request, SearchRequest)
        query = _as_query([parsed])
    answers = await run_in_threadpool(_search, state, gallery, query, options)
    return answers[0]


@router.post("/search/batch")
async def search_batch(gallery: str, body: BatchRequest, state: StateDependency) -> BatchAnswerBody:
    """Search for several images, embeddings or items; each is answered as if it were alone."""
    most = state.settings.max_batch
    if len(body.queries) > most:
        raise RequestError(f"{len(body.queries)} queries, at most max_batch = {most} are accepted")
    answers = await run_in_threadpool(_search, state, gallery, _as_query(body.queries), body)
    return BatchAnswerBody(answers=answers)


def _search(state: State, gallery: str, query: dict[str, Any], options: SearchOptions) -> list[Answer]:
    most = state.settings.max_limit
    if options.limit > most:
        raise RequestError(f"limit is {options.limit}, at most max_limit = {most} is accepted")
    matcher = state.galleries.matcher(gallery)
    chosen = {name: getattr(options, name) for name in SearchOptions.model_fields}
    answers = matcher.search(**query, **chosen)
    state.metrics.record(answers, matcher.view)
    state.galleries.drift.record(answers, matcher)
    return state.galleries.drift.noted(answers)


def _as_query(queries: list[Any]) -> dict[str, Any]:
    first: Query = queries[0]
    if first.image_base64 is not None:
        return {"images": [query.image for query in queries]}
    if first.embedding is not None:
        if len({len(query.embedding) for query in queries}) > 1:
            raise RequestError("the embeddings of a batch have different lengths")
        return {"embeddings": [query.embedding for query in queries]}
    return {"item_ids": [query.item_id for query in queries]}


async def _from_form(request: Request) -> tuple[bytes, SearchOptions]:
    # Leaving the block removes the file that a large upload is kept in.
    async with request.form(max_files=1, max_fields=16) as form:
        (image,) = images_of(form)
        options = {name: value for name, value in form.items() if name != "image"}
        return await image.read(), validated(SearchOptions, options)
