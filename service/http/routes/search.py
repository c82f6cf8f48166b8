"""Search by image, embedding or item."""

from __future__ import annotations

import json
from typing import Any, TypeVar, get_args

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from vicinal.models.errors import UnsupportedFormatError
from vicinal.service.errors import RequestError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.bodies.search import (
    AnswerBody,
    BatchAnswerBody,
    BatchRequest,
    Query,
    SearchOptions,
    SearchRequest,
)
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.rate_limit import admit
from vicinal.service.http.requests import GalleriesDependency, MetricsDependency, SettingsDependency
from vicinal.service.matcher.answers import Answer
from vicinal.service.scoring.pipeline import RefineChoice, RerankChoice
from vicinal.service.settings import Settings

__all__ = ["router"]

_Options = TypeVar("_Options", bound=SearchOptions)
router = APIRouter(prefix="/v1/galleries/{gallery}", tags=["search"], dependencies=[Depends(admit)])

_OPTION_FIELDS = {
    "limit": {"type": "integer", "default": 10, "minimum": 1},
    "threshold": {"type": "number", "minimum": 0, "maximum": 1},
    "refine": {"type": "string", "enum": list(get_args(RefineChoice)), "default": "auto"},
    "steps": {"type": "integer", "minimum": 1},
    "rerank": {"type": "string", "enum": list(get_args(RerankChoice)), "default": "auto"},
    "filter": {"type": "string", "maxLength": 4096},
    "include_candidates": {"type": "boolean", "default": False},
    "explain": {"type": "boolean", "default": False},
}
_SEARCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "properties": {"image": {"type": "string", "format": "binary"}, **_OPTION_FIELDS},
                }
            },
            "application/json": {"schema": SearchRequest.model_json_schema()},
        },
    }
}


@router.post("/search", openapi_extra=_SEARCH_BODY)
async def search(
    gallery: str,
    request: Request,
    galleries: GalleriesDependency,
    metrics: MetricsDependency,
    settings: SettingsDependency,
) -> AnswerBody:
    """Find the matches of one image, embedding or item, or learn that there is none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        image, options = await _from_form(request)
        query: dict[str, Any] = {"images": [image]}
    elif kind in ("application/json", ""):
        parsed = _validated(SearchRequest, await _json(request))
        query, options = _as_query([parsed]), parsed
    else:
        raise UnsupportedFormatError(
            f"the body is {kind}: send multipart/form-data with a file 'image', or application/json"
        )
    answers = await run_in_threadpool(_search, galleries, metrics, settings, gallery, query, options)
    return AnswerBody.model_validate(answers[0])


@router.post("/search/batch")
async def search_batch(
    gallery: str,
    body: BatchRequest,
    galleries: GalleriesDependency,
    metrics: MetricsDependency,
    settings: SettingsDependency,
) -> BatchAnswerBody:
    """Search for several images, embeddings or items; each is answered as if it were alone."""
    if len(body.queries) > settings.max_batch:
        raise RequestError(
            f"{len(body.queries)} queries, at most max_batch = {settings.max_batch} are accepted"
        )
    query = _as_query(body.queries)
    answers = await run_in_threadpool(_search, galleries, metrics, settings, gallery, query, body)
    return BatchAnswerBody(answers=[AnswerBody.model_validate(answer) for answer in answers])


def _search(
    galleries: OpenGalleries,
    metrics: Metrics,
    settings: Settings,
    gallery: str,
    query: dict[str, Any],
    options: SearchOptions,
) -> list[Answer]:
    if options.limit > settings.max_limit:
        raise RequestError(f"limit is {options.limit}, at most max_limit = {settings.max_limit} is accepted")
    matcher = galleries.matcher(gallery)
    answers = matcher.search(
        **query,
        limit=options.limit,
        threshold=options.threshold,
        refine=options.refine,
        steps=options.steps,
        rerank=options.rerank,
        filter=options.filter,
        include_candidates=options.include_candidates,
        explain=options.explain,
    )
    metrics.record(answers, matcher.view)
    galleries.drift.record(answers, matcher)
    return answers


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
        image = form.get("image")
        if not isinstance(image, UploadFile):
            raise RequestError("the form has no file 'image'")
        options = {name: value for name, value in form.items() if name != "image"}
        return await image.read(), _validated(SearchOptions, options)


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error


def _validated(model: type[_Options], fields: Any) -> _Options:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
