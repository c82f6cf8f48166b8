"""Search by image, embedding or item."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, TypeAdapter, field_validator, model_validator

from vicinal.calibration.arrays import FloatArray
from vicinal.models.errors import EmbeddingError
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError
from vicinal.service.http.access import call_of
from vicinal.service.http.gate import QueryRoute, Routes, large_body
from vicinal.service.http.request_bodies import (
    FLOATS,
    FORM,
    JSON,
    Vector,
    body_schema,
    content_type,
    files_of,
    json_body,
    read_form,
    validated,
)
from vicinal.service.http.search_queue import Search
from vicinal.service.http.state import State, StateDependency
from vicinal.service.request_fields import RequestFields, SearchOptions
from vicinal.service.search.answers import Answer

# Fields of a query, and what the search queue calls queries that have them.
_KINDS = {
    "image_base64": "images",
    "embedding": "embeddings",
    "item_id": "item_ids",
    "search_id": "embeddings",
}


class Query(RequestFields):
    """Query by exactly one of the three fields."""

    image_base64: str | None = Field(None, description="An encoded image, base64, also as a `data:` address.")
    embedding: Vector | None = Field(None, description="An embedding of the service's bundle.")
    item_id: str | None = Field(None, description="An item of the gallery; it is left out of its own search.")

    kinds: ClassVar[Sequence[str]] = ("image_base64", "embedding", "item_id")

    @property
    def given(self) -> list[str]:
        """Names of the fields that were given."""
        return [name for name in self.kinds if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _exactly_one(self) -> Query:
        if len(self.given) != 1:
            *others, last = self.kinds
            raise ValueError(f"give exactly one of {', '.join(others)} and {last}")
        return self

    @field_validator("image_base64")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            _decode_base64(value)
        return value

    @property
    def image(self) -> bytes | None:
        """The decoded bytes of `image_base64`."""
        return None if self.image_base64 is None else _decode_base64(self.image_base64)


class SearchRequest(SearchOptions, Query):
    """A query and how to search for it."""

    kinds = (*Query.kinds, "search_id")

    search_id: str | None = Field(
        None,
        max_length=64,
        description="A kept search, whose picture or embedding is searched for again; it is not kept anew.",
    )


class BatchRequest(SearchOptions):
    """Several queries of one kind."""

    queries: list[Query] = Field(min_length=1, fail_fast=True)

    @model_validator(mode="after")
    def _of_one_kind(self) -> BatchRequest:
        kinds = {name for query in self.queries for name in query.given}
        if len(kinds) > 1:
            raise ValueError(f"the queries of a batch are of one kind, got {' and '.join(sorted(kinds))}")
        return self


class BatchAnswerBody(BaseModel):
    """Answers in the order of the queries."""

    answers: list[Answer]


_ANSWER = TypeAdapter(Answer)
_BATCH = TypeAdapter(BatchAnswerBody)
_OPTIONS = SearchOptions.model_json_schema()["properties"]
_BODY = body_schema(_OPTIONS, several=False, json=SearchRequest)
_NUMBERS = {"type": "string", "format": "binary", "description": "An embedding: float32, little-endian."}
_OF_NUMBERS: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in _OPTIONS.items()
    ],
    "requestBody": {"required": True, "content": {FLOATS: {"schema": _NUMBERS}}},
}


router = Routes(prefix="/v1/galleries/{gallery}", tags=["search"], route_class=QueryRoute)


@router.post("/search", response_model=Answer, openapi_extra=_BODY)
@large_body
async def search(gallery: str, request: Request, state: StateDependency) -> Response:
    """Find the matches of one image, embedding or item, or learn that there is none."""
    options: SearchOptions
    queries: list[Any]
    kept = None
    if content_type(request, FORM, JSON) == FORM:
        image, options = await _from_form(request)
        kind, queries = "images", [image]
    else:
        options = parsed = await json_body(request, SearchRequest)
        kind, queries = _as_query([parsed])
        kept = parsed.search_id
        if kept is not None:
            await state.keeper.catch_up()
            queries = await state.calls(request.scope).called(
                request, partial(_kept_query, state, gallery, kept)
            )
    answers = await _answered(state, request, gallery, kind, queries, options, kept)
    return _json(_ANSWER.dump_json(answers[0]))


@router.post("/search/embedding", response_model=Answer, openapi_extra=_OF_NUMBERS)
@large_body
async def search_embedding(gallery: str, request: Request, state: StateDependency) -> Response:
    """Find the matches of an embedding that is sent as the bytes of its numbers, not as text."""
    content_type(request, FLOATS)
    options = validated(SearchOptions, dict(request.query_params), are_texts=True)
    # In a thread, as JSON is: where the event loop takes all searches over at once, it has no time left to
    # turn any away (docs/RESULTS.md).
    query = await run_in_threadpool(_floats, await request.body())
    answers = await _answered(state, request, gallery, "embeddings", [query], options)
    return _json(_ANSWER.dump_json(answers[0]))


@router.post("/search/batch", response_model=BatchAnswerBody)
@large_body
async def search_batch(
    gallery: str, body: BatchRequest, request: Request, state: StateDependency
) -> Response:
    """Search for several images, embeddings or items; each is answered as if it were alone."""
    most = state.settings.max_batch
    if len(body.queries) > most:
        raise RequestError(f"{len(body.queries)} queries, at most max_batch = {most} are accepted")
    answers = await _answered(state, request, gallery, *_as_query(body.queries), body)
    return _json(_BATCH.dump_json(BatchAnswerBody(answers=answers)))


def _kept_query(state: State, gallery: str, search_id: str) -> FloatArray:
    """(d,) embedding of a kept search."""
    matcher = state.galleries.matcher(gallery)
    found = SearchStore(matcher.gallery.path).get(search_id)
    if found.bundle != matcher.snapshot.manifest.bundle:
        raise RequestError(
            f"search '{search_id}' was made with another model than gallery '{gallery}' has now: search with "
            "its photo again"
        )
    return found.embedding


async def _answered(
    state: State,
    request: Request,
    gallery: str,
    kind: str,
    queries: list[Any],
    options: SearchOptions,
    kept: str | None = None,
) -> list[Answer]:
    most = state.settings.max_limit
    if options.limit > most:
        raise RequestError(f"limit is {options.limit}, at most max_limit = {most} is accepted")
    # Without the query: what asks for the same is answered together.
    chosen = {name: getattr(options, name) for name in SearchOptions.model_fields}
    asked, grant = SearchOptions.model_construct(**chosen), call_of(request.scope).grant
    asker = None if grant is None else grant.name
    sender = f"{asker} {request.client and request.client.host}"
    search = Search(gallery, kind, queries, {"asked": asked}, sender, asker, kept=kept)
    return await state.searches.answered_to(request, search)


def _json(encoded: bytes) -> Response:
    # The answer is of the documented type already; validating it again would cost as much as the search.
    return Response(encoded, media_type="application/json")


def _as_query(queries: Sequence[Query]) -> tuple[str, list[Any]]:
    (field,) = queries[0].given
    sent: list[Any] = [query.image if field == "image_base64" else getattr(query, field) for query in queries]
    if field == "embedding" and len({len(one) for one in sent}) > 1:
        raise RequestError("the embeddings of a batch have different lengths")
    return _KINDS[field], sent


async def _from_form(request: Request) -> tuple[bytes, SearchOptions]:
    async with read_form(request, max_files=1, max_fields=16) as form:
        (image,) = files_of(form)
        options = {name: value for name, value in form.items() if name != "image"}
        return await image.read(), validated(SearchOptions, options, are_texts=True)


def _floats(body: bytes) -> FloatArray:
    """(d,) float32 embedding of a body, which the search looks at further."""
    if len(body) % 4:
        raise EmbeddingError(f"an embedding is float32 numbers of 4 bytes each, got {len(body):,} bytes")
    return np.frombuffer(body, "<f4")


def _decode_base64(text: str) -> bytes:
    body = text
    if text[:5].lower() == "data:":
        # Browsers give data URLs: everything before the comma says what the rest is.
        head, _, body = text.partition(",")
        if not head.lower().endswith(";base64"):
            raise ValueError("it is a data: address that is not base64")
        body = unquote(body)
    # Mails break lines; addresses have - and _ for + and /, and leave the end out.
    body = "".join(body.split()).rstrip("=")
    body += "=" * (-len(body) % 4)
    try:
        return base64.b64decode(body, b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"it is not base64: {error}") from error
