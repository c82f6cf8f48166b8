"""Problems: every error as an RFC 9457 document with a stable type."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vicinal.service.problem_types import PREFIX, PROBLEMS, problem_members

__all__ = ["install_problem_handlers", "problem"]

logger = logging.getLogger(__name__)

_STATUS_KINDS = {401: "unauthorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}


def problem(status: int, kind: str, detail: str, **further: object) -> JSONResponse:
    """One problem document.

    Args:
        status: HTTP status.
        kind: Last part of the type, in words joined by `-`.
        detail: One sentence for a person.
        further: Members beyond the standard ones.
    """
    body = {
        "type": PREFIX + kind,
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **further,
    }
    return JSONResponse(body, status, media_type="application/problem+json")


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""
    for error_class, (status, kind) in PROBLEMS.items():
        app.add_exception_handler(error_class, _handler(status, kind))
    # Starlette types every handler as taking any exception, and calls it with its own class only.
    app.add_exception_handler(RequestValidationError, _invalid_fields)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _unexpected)


def _handler(status: int, kind: str):  # type: ignore[no-untyped-def]  # Starlette's handler type is private
    def answer(request: Request, error: Exception) -> JSONResponse:
        request.app.state.metrics.record_problem(kind)
        document = problem(status, kind, str(error), **problem_members(error))
        document.headers.update(getattr(error, "headers", {}))
        return document

    return answer


def _invalid_fields(request: Request, error: RequestValidationError) -> JSONResponse:
    request.app.state.metrics.record_problem("invalid-request")
    # Without the input itself: it may be large, secret, or NaN, which JSON cannot hold.
    fields = [
        {"field": ".".join(str(part) for part in one["loc"]), "reason": one["msg"]} for one in error.errors()
    ]
    first = fields[0] if fields else {"field": "body", "reason": "it is not valid"}
    return problem(422, "invalid-request", f"{first['field']}: {first['reason']}", errors=fields)


def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    kind = _STATUS_KINDS.get(error.status_code, "invalid-request")
    request.app.state.metrics.record_problem(kind)
    answer = problem(error.status_code, kind, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.exception("unexpected error at %s", request.url.path, exc_info=error)
    request.app.state.metrics.record_problem("internal-error")
    return problem(500, "internal-error", "an unexpected error; the server's log has the details")
