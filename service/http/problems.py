"""Problems: every error as an RFC 9457 document with a stable type."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from vicinal.indexer.errors import GalleryNotFoundError, IndexerError
from vicinal.service.http.access import Metrics, call_of
from vicinal.service.http.state import state_of
from vicinal.service.observability.logs import request_id
from vicinal.service.problem_types import (
    PREFIX,
    PROBLEMS,
    detail_of,
    problem_headers,
    problem_members,
    status_and_kind,
)

logger = logging.getLogger(__name__)

_METHOD_NOT_ALLOWED, _SAME_METHOD_ELSEWHERE = 405, 307
_NO_ROUTE = (404, _METHOD_NOT_ALLOWED)
_SERVER_ERROR = 500
_DAMAGED = ("gallery-damaged", "gallery-files-damaged")
# Of an answer to what is wrong; what was sent may be in it, and long.
_MOST_ERRORS = 10
_LONGEST_DETAIL, _LONGEST_FIELD = 2000, 200
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_STATUS_KINDS = {401: "unauthorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}


def problem(status: int, kind: str, detail: str, **further: object) -> JSONResponse:
    """Problem document."""
    body = {
        "type": PREFIX + kind,
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": _cut(detail, _LONGEST_DETAIL),
        **further,
    }
    request = request_id()
    if request is not None:
        body["request_id"] = request
    return JSONResponse(body, status, media_type="application/problem+json")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def problem_of(error: Exception, *, in_full: bool = True) -> JSONResponse:
    """Problem document of an error; `in_full` for who may see all galleries, and learn of the server."""
    status, kind = status_and_kind(error)
    detail = detail_of(error, in_full=in_full)
    if detail != str(error):
        logger.warning("%s: %s", kind, error)
    document = problem(status, kind, detail, **problem_members(error))
    document.headers.update(problem_headers(error))
    return document


class Problem(BaseModel):
    """RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str = Field(
        description="As in the header `X-Request-ID`, and in what the server logs of the request."
    )


# Coroutines, because other handlers would be called on another thread.
async def _expected(request: Request, error: Exception) -> JSONResponse:
    status, kind = status_and_kind(error)
    if kind in _DAMAGED and (gone := _gone(request)) is not None:
        error, (status, kind) = gone, status_and_kind(gone)
    state_of(request.app).metrics.record_problem(kind)
    if status == _SERVER_ERROR:
        # What is damaged is nothing that a client can mend.
        logger.error("%s at %s", kind, request.url.path, exc_info=error)
    return problem_of(error, in_full=call_of(request.scope).in_full)


def _gone(request: Request) -> GalleryNotFoundError | None:
    """Error of a gallery that is not there any more: to who reads its files, they seem damaged."""
    gallery = request.path_params.get("gallery")
    try:
        if gallery is not None:
            state_of(request.app).galleries.gallery(gallery)
    except GalleryNotFoundError as error:
        return error
    except IndexerError:
        pass  # What is wrong with it is what failed.
    return None


async def _invalid_fields(request: Request, error: RequestValidationError) -> JSONResponse:
    errors = error.errors()
    fields = [
        {
            "field": _cut(".".join(str(part) for part in one["loc"]), _LONGEST_FIELD),
            "reason": _cut(one["msg"], _LONGEST_DETAIL),
        }
        for one in errors[:_MOST_ERRORS]
    ]
    first = fields[0] if fields else {"field": "body", "reason": "it is not valid"}
    further = f" (and {len(errors) - 1:,} more errors)" if len(errors) > _MOST_ERRORS else ""
    detail = f"{first['field']}: {first['reason']}{further}"
    return counted_problem(state_of(request.app).metrics, 422, "invalid-request", detail, errors=fields)


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code in _NO_ROUTE and (place := _without_slash(request)) is not None:
        return RedirectResponse(place, _SAME_METHOD_ELSEWHERE)
    kind = _STATUS_KINDS.get(error.status_code, "invalid-request")
    answer = counted_problem(state_of(request.app).metrics, error.status_code, kind, str(error.detail))
    answer.headers.update(error.headers or {})
    if error.status_code == _METHOD_NOT_ALLOWED:
        # Starlette names the methods of the first route alone. Where GET is answered, HEAD is too.
        own = {one: "GET" if one == "HEAD" else one for one in _METHODS}
        known = [name for name, method in own.items() if _is_answered(request, method=method)]
        answer.headers["Allow"] = ", ".join(known)
    return answer


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.exception("unexpected error at %s", request.url.path, exc_info=error)
    detail = "an unexpected error; the server's log has the details"
    return counted_problem(state_of(request.app).metrics, *status_and_kind(error), detail)


def counted_problem(metrics: Metrics, status: int, kind: str, detail: str, **further: object) -> JSONResponse:
    """Problem document that stands in the metrics too."""
    metrics.record_problem(kind)
    return problem(status, kind, detail, **further)


# What answers each error of an application with a problem document, and counts it.
HANDLERS: dict[int | type[Exception], Any] = {
    **dict.fromkeys(PROBLEMS, _expected),
    RequestValidationError: _invalid_fields,
    HTTPException: _http_error,
    Exception: _unexpected,
}


def _without_slash(request: Request) -> str | None:
    """Address of a request without the slash at its end, seen from there; None where nothing is there."""
    raw = request.scope.get("raw_path", b"").decode("latin-1")
    if not raw.endswith("/") or not _is_answered(request, path=request.scope["path"].removesuffix("/")):
        return None
    query = request.url.query
    return f"../{raw.rstrip('/').rpartition('/')[2]}{'?' if query else ''}{query}"


def _is_answered(request: Request, **changed: str) -> bool:
    """Tell whether there is a route for a request, with another method or path."""
    asked = {**request.scope, **changed}
    return any(route.matches(asked)[0] == Match.FULL for route in request.app.routes)
