"""Errors of the client, all below `VicinalError`."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from vicinal_client.models import Job
    from vicinal_client.uploads import UploadResult

__all__ = [
    "PROBLEM_PREFIX",
    "AccessError",
    "ConflictError",
    "InvalidRequestError",
    "JobError",
    "JobFailedError",
    "JobUnfinishedError",
    "NoAnswerError",
    "NotFoundError",
    "ProblemError",
    "ServerError",
    "TimeLimitError",
    "TooManyRequestsError",
    "UnreadableAnswerError",
    "UploadStoppedError",
    "VicinalError",
    "lost_connection",
    "problem_of",
]

PROBLEM_PREFIX = "urn:vicinal:problem:"
_SHOWN_CHARACTERS = 200


class VicinalError(Exception):
    """Root of all errors of the client."""


class NoAnswerError(VicinalError, ConnectionError):
    """The server cannot be reached, or the connection was lost before its answer was there."""


class TimeLimitError(NoAnswerError, TimeoutError):
    """The server did not answer in time."""


class UnreadableAnswerError(VicinalError, ValueError):
    """The answer is not of this API: it came from a proxy, another service, or a much older server."""


class JobError(VicinalError, RuntimeError):
    """A job that was waited for has no result.

    Attributes:
        job: The job as it was last seen.
    """

    def __init__(self, job: Job, reason: str) -> None:
        super().__init__(f"job '{job.id}' ({job.kind} of gallery '{job.gallery}') {reason}")
        self.job = job


class JobFailedError(JobError):
    """A job failed or was cancelled; `job.problem` says why, `job.problem_type` for a program."""


class JobUnfinishedError(JobError, TimeoutError):
    """A job has not ended in the time that it was given; it goes on."""


class UploadStoppedError(VicinalError, RuntimeError):
    """A bulk upload cannot go on; its cause is the error that stopped it.

    Attributes:
        result: What became of the images until then. The same call can be repeated: what is there already
            is `unchanged`.
    """

    def __init__(self, result: UploadResult, reason: Exception) -> None:
        super().__init__(f"stopped after {result.n_done:,} images: {reason}")
        self.result = result


class ProblemError(VicinalError):
    """The server answered with a problem.

    Attributes:
        status: HTTP status.
        kind: Stable name of the problem, such as `item-exists`; empty where what answered was a proxy.
        detail: One sentence for a person.
        members: Further members of the problem document, such as `errors` or `job`.
        retry_after: Seconds after which it is worth coming again; None where the server names none.
    """

    def __init__(
        self,
        *,
        status: int,
        kind: str,
        detail: str,
        members: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{detail} ({status}{f' {kind}' if kind else ''})")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.members = members or {}
        self.retry_after = retry_after

    @property
    def item_ids(self) -> list[str]:
        """Ids of the items that the problem is about; empty where it names none."""
        ids = self.members.get("ids") or [self.members.get("id")]
        ids = [*ids, *(one.get("id") for one in self.errors)]
        return list(dict.fromkeys(one for one in ids if isinstance(one, str)))

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Faults of each field, or of each of several images; empty where it was one thing."""
        errors = self.members.get("errors")
        return [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []


class InvalidRequestError(ProblemError, ValueError):
    """The request cannot be answered as it was asked: not an image, too large, an unknown field, ..."""


class AccessError(ProblemError, PermissionError):
    """No valid API key, or one without the scope that the call needs."""


class NotFoundError(ProblemError, LookupError):
    """There is no such gallery, item, version, calibration, comparison or job."""


class ConflictError(ProblemError, RuntimeError):
    """The state of the server stands against it: an item of this id, another job, another bundle."""


class TooManyRequestsError(ProblemError, RuntimeError):
    """A limit on requests was reached, and coming again in time did not help."""


class ServerError(ProblemError, RuntimeError):
    """The server could not do it: damaged files, a full disk, or something that nobody expected."""


_CLASSES: dict[int, type[ProblemError]] = {
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    409: ConflictError,
    429: TooManyRequestsError,
}


def problem_of(response: httpx.Response) -> ProblemError:
    """The error that an answer stands for, whose status is no success; its body has been read."""
    document = _document(response)
    status = response.status_code
    kind = str(document.pop("type", "")).removeprefix(PROBLEM_PREFIX)
    detail = str(document.pop("detail", "")) or response.text[:_SHOWN_CHARACTERS] or response.reason_phrase
    members = {name: value for name, value in document.items() if name not in ("title", "status")}
    error_class = _CLASSES.get(status, ServerError if status >= 500 else InvalidRequestError)
    return error_class(
        status=status, kind=kind, detail=detail, members=members, retry_after=_retry_after(response)
    )


def lost_connection(error: httpx.TransportError) -> NoAnswerError:
    """The error of the client for one of httpx."""
    # The address may carry a password; only where the server is belongs in a message.
    where = (
        f"{error.request.url.host}:{error.request.url.port or ''}".rstrip(":") if _has_request(error) else ""
    )
    if isinstance(error, httpx.TimeoutException):
        return TimeLimitError(f"no answer in time from {where}: {type(error).__name__}")
    return NoAnswerError(f"no answer from {where}: {str(error) or type(error).__name__}")


def _has_request(error: httpx.TransportError) -> bool:
    try:
        return error.request is not None
    except RuntimeError:
        return False


def _document(response: httpx.Response) -> dict[str, Any]:
    # A proxy answers with a page of its own.
    if response.headers.get("content-type", "").partition(";")[0] != "application/problem+json":
        return {}
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _retry_after(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        # Against the server's clock where it tells the time: ours may be wrong.
        now = response.headers.get("date")
        since = parsedate_to_datetime(now) if now else datetime.now(UTC)
        return max(0.0, (parsedate_to_datetime(text) - since).total_seconds())
    except (TypeError, ValueError):
        return None
