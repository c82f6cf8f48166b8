"""Errors of the service package, all below `ServiceError`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vicinal.calibration.advice import AdvisedError


class ServiceError(AdvisedError):
    """Root of the package's errors."""


class RequestError(ServiceError, ValueError):
    """A request cannot be answered as it was asked."""


class KeyStoreError(ServiceError, ValueError):
    """The stored API keys cannot be read; none is accepted."""


class NothingAddedError(RequestError):
    """None of several uploaded images was added; `errors` say what was wrong with each."""

    def __init__(self, reason: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(reason)
        self.members = {"errors": errors}


class BodyTooLargeError(RequestError):
    """The body of a request is larger than its call takes."""


class BodyTooSlowError(RequestError):
    """The body of a request does not come."""


class CalibrationRecordError(ServiceError, ValueError):
    """A stored calibration is missing or damaged."""


class CalibrationMismatchError(ServiceError, ValueError):
    """A calibration is of another bundle or gallery, so that no search could use it."""


class RecordNotFoundError(ServiceError, LookupError):
    """A gallery has no such record."""

    kind = "record"

    def __init__(self, gallery: str, record: str) -> None:
        super().__init__(f"gallery '{gallery}' has no {self.kind} '{record}'")


class CalibrationNotFoundError(RecordNotFoundError):
    """There is no calibration of that id."""

    kind = "calibration"


class ComparisonNotFoundError(RecordNotFoundError):
    """There is no comparison of that id."""

    kind = "comparison"


class ComparisonRecordError(ServiceError, ValueError):
    """A stored comparison is damaged."""


class DuplicatesNotFoundError(RecordNotFoundError):
    """There is no record of duplicates of that id, or it is damaged; the newest are kept."""

    kind = "record of duplicates"


class VerdictNotFoundError(RecordNotFoundError):
    """Nobody called photos no copies under that number."""

    kind = "verdict on copies"


class SearchNotFoundError(ServiceError, LookupError):
    """A search was not kept, or has gone."""

    def __init__(self, gallery: str, search: str) -> None:
        super().__init__(
            f"gallery '{gallery}' has no kept search '{search}': it was not kept, or has gone with its age"
        )


class AnswerNotFoundError(RequestError, LookupError):
    """There is no such answer to a search, or it is another person's."""

    def __init__(self, number: int | str) -> None:
        super().__init__(
            f"there is no answer {number} to take back: it was taken back, or is another person's"
        )


class UnknownLabelError(RequestError):
    """No item has a label; `nearest` are labels that it may stand for."""

    def __init__(self, gallery: str, label: str, nearest: list[str]) -> None:
        close = ", ".join(f"'{one}'" for one in nearest)
        super().__init__(
            f"no item of gallery '{gallery}' has the label '{label}'"
            + (f", the nearest are {close}" if nearest else "")
            + ": name a label that it has, or say that it is absent"
        )
        self.members = {"nearest": nearest}


class RedisAwayError(ServiceError, ConnectionError):
    """Redis did not answer in time."""


class TooManyRequestsError(ServiceError, RuntimeError):
    """A limit on requests was reached; it is worth coming again after `seconds`."""

    def __init__(self, reason: str, *, seconds: int) -> None:
        super().__init__(reason)
        self.seconds = seconds
        self.headers = {"Retry-After": str(seconds)}


class JobNotFoundError(ServiceError, LookupError):
    """There is no job of that id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job '{job_id}'; finished ones are kept for a while only")


class DamagedJobError(JobNotFoundError):
    """The record of a job is not what was written."""

    def __init__(self, job_id: str) -> None:
        ServiceError.__init__(
            self,
            f"the record of job '{job_id}' is damaged; what it has done is in its gallery: start it again",
        )
        self.job_id = job_id


class JobConflictError(ServiceError, RuntimeError):
    """Another job, `job_id`, works on the gallery."""

    def __init__(self, gallery: str, job_id: str) -> None:
        super().__init__(f"job '{job_id}' works on gallery '{gallery}': wait for it, or cancel it")
        self.members = {"job": job_id}


class JobsUnavailableError(ServiceError, ConnectionError):
    """The store of jobs does not answer."""

    headers: ClassVar = {"Retry-After": "5"}


class JobStoppedError(ServiceError, RuntimeError):
    """Unwinds a job that was `cancelled`, `interrupted` by the worker's end, or `overtaken` by another."""

    def __init__(self, why: Literal["cancelled", "interrupted", "overtaken"]) -> None:
        super().__init__(f"the job was {why}")
        self.why = why
