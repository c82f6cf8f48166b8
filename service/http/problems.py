"""Problems: every error as an RFC 9457 document with a stable type."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vicinal.calibration import (
    CalibrationError,
    NotEnoughTrialsError,
    OneLabelError,
    UnlabelledGalleryError,
    UnreachableTargetError,
)
from vicinal.indexer.errors import (
    BundleMismatchError,
    FilterError,
    GalleryBusyError,
    GalleryError,
    GalleryNotFoundError,
    GalleryNotRefinedError,
    ItemNotFoundError,
    SourceError,
    StorageError,
    VersionNotFoundError,
)
from vicinal.models.errors import (
    EmbeddingError,
    ImageError,
    ImageTooLargeError,
    ImageTooSmallError,
    NotAnImageError,
    UnsupportedFormatError,
)
from vicinal.refine.errors import RefinementError, RefinerMismatchError, RefinerNotFoundError
from vicinal.service.errors import (
    CalibrationMismatchError,
    CalibrationNotFoundError,
    CalibrationRecordError,
    ComparisonNotFoundError,
    ComparisonRecordError,
    JobConflictError,
    JobNotFoundError,
    JobsUnavailableError,
    NothingAddedError,
    RequestError,
    TooManyRequestsError,
)

__all__ = [
    "PROBLEM_TYPE_PREFIX",
    "PROBLEMS",
    "install_problem_handlers",
    "problem",
    "problem_members",
    "problem_type",
]

PROBLEM_TYPE_PREFIX = "urn:vicinal:problem:"
logger = logging.getLogger(__name__)

# The first class that fits decides, so that subclasses stand before their parents.
PROBLEMS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotAnImageError, 400, "not-an-image"),
    (UnsupportedFormatError, 415, "unsupported-format"),
    (ImageTooLargeError, 413, "image-too-large"),
    (ImageTooSmallError, 422, "image-too-small"),
    (ImageError, 400, "not-an-image"),
    (EmbeddingError, 422, "invalid-embedding"),
    (NothingAddedError, 422, "nothing-added"),
    (RequestError, 422, "invalid-request"),
    (FilterError, 422, "invalid-filter"),
    (ItemNotFoundError, 404, "item-not-found"),
    (VersionNotFoundError, 404, "version-not-found"),
    (GalleryNotFoundError, 404, "gallery-not-found"),
    (BundleMismatchError, 409, "bundle-mismatch"),
    (GalleryNotRefinedError, 409, "gallery-not-refined"),
    (RefinerNotFoundError, 422, "refiner-not-found"),
    (RefinerMismatchError, 409, "refiner-mismatch"),
    (RefinementError, 422, "invalid-refinement"),
    (GalleryBusyError, 409, "gallery-busy"),
    (UnlabelledGalleryError, 422, "calibration-unlabelled"),
    (OneLabelError, 422, "calibration-one-label"),
    (NotEnoughTrialsError, 422, "calibration-too-few-trials"),
    (UnreachableTargetError, 422, "calibration-unreachable"),
    (CalibrationError, 422, "calibration-impossible"),
    (CalibrationMismatchError, 409, "calibration-mismatch"),
    (CalibrationNotFoundError, 404, "calibration-not-found"),
    (CalibrationRecordError, 500, "calibration-damaged"),
    (ComparisonNotFoundError, 404, "comparison-not-found"),
    (ComparisonRecordError, 500, "comparison-damaged"),
    (TooManyRequestsError, 429, "too-many-requests"),
    (JobNotFoundError, 404, "job-not-found"),
    (JobConflictError, 409, "job-conflict"),
    (JobsUnavailableError, 503, "jobs-unavailable"),
    (SourceError, 422, "source-unusable"),
    (StorageError, 507, "storage-failed"),
    (GalleryError, 500, "gallery-damaged"),
)
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
        "type": PROBLEM_TYPE_PREFIX + kind,
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **further,
    }
    return JSONResponse(body, status, media_type="application/problem+json")


def problem_type(error: Exception) -> str:
    """Problem type of an error that is told beside others."""
    kind = next((kind for known, _, kind in PROBLEMS if isinstance(error, known)), "internal-error")
    return PROBLEM_TYPE_PREFIX + kind


def problem_members(error: Exception) -> dict[str, Any]:
    """Members of a problem document beyond the standard ones."""
    return dict(getattr(error, "members", {}))


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""
    for error_class, status, kind in PROBLEMS:
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
