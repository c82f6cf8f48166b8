"""Problem types: the stable name and the HTTP status of every error that the project raises."""

from __future__ import annotations

from typing import Any

from vicinal.calibration import (
    CalibrationError,
    NotEnoughTrialsError,
    OneLabelError,
    UnlabelledGalleryError,
    UnreachableTargetError,
)
from vicinal.indexer.errors import (
    AliasNotFoundError,
    BuildError,
    BundleMismatchError,
    DamagedGalleryError,
    DownloadError,
    FilterError,
    GalleryAliasedError,
    GalleryBusyError,
    GalleryError,
    GalleryExistsError,
    GalleryNameError,
    GalleryNotFoundError,
    GalleryNotRefinedError,
    IndexDeviceError,
    IndexerError,
    ItemExistsError,
    ItemNotFoundError,
    ItemRefusedError,
    NoImageError,
    SourceError,
    SpaceMismatchError,
    StorageError,
    VersionNotFoundError,
)
from vicinal.models.errors import (
    BlankImageError,
    BundleError,
    ConfigError,
    DatasetError,
    DecodingBusyError,
    EmbeddingError,
    EvaluationError,
    ImageError,
    ImageTooLargeError,
    ImageTooSmallError,
    LostProcessError,
    MissingPackageError,
    ModelsError,
    NetworkDeviceError,
    NotAnImageError,
    ReadyEmbeddingsError,
    TrainingStoppedError,
    UnsupportedFormatError,
)
from vicinal.refine.errors import (
    RefineError,
    RefinementError,
    RefinerMismatchError,
    RefinerNotFoundError,
    RefinerTrainingError,
)
from vicinal.service.errors import (
    BodyTooLargeError,
    BodyTooSlowError,
    CalibrationMismatchError,
    CalibrationNotFoundError,
    CalibrationRecordError,
    ComparisonNotFoundError,
    ComparisonRecordError,
    DuplicatesNotFoundError,
    JobConflictError,
    JobNotFoundError,
    JobStoppedError,
    JobsUnavailableError,
    KeyStoreError,
    NothingAddedError,
    RedisAwayError,
    RequestError,
    ServiceError,
    TooManyRequestsError,
)

PREFIX = "urn:vicinal:problem:"

# Roots of what the project raises on purpose: each error of them explains itself in one sentence.
ERRORS = (CalibrationError, IndexerError, ModelsError, RefineError, ServiceError)

# HTTP status and last part of the type; an error without an entry of its own has that of its base.
PROBLEMS: dict[type[Exception], tuple[int, str]] = {
    NotAnImageError: (400, "not-an-image"),
    UnsupportedFormatError: (415, "unsupported-format"),
    ImageTooLargeError: (413, "image-too-large"),
    ImageTooSmallError: (422, "image-too-small"),
    BlankImageError: (422, "image-blank"),
    ImageError: (400, "not-an-image"),
    DecodingBusyError: (429, "decoding-busy"),
    EmbeddingError: (422, "invalid-embedding"),
    ReadyEmbeddingsError: (422, "ready-embeddings"),
    BundleError: (500, "bundle-unusable"),
    ConfigError: (422, "invalid-configuration"),
    DatasetError: (422, "dataset-unusable"),
    EvaluationError: (422, "evaluation-impossible"),
    TrainingStoppedError: (409, "training-stopped"),
    LostProcessError: (500, "training-process-lost"),
    MissingPackageError: (501, "package-missing"),
    BodyTooLargeError: (413, "body-too-large"),
    BodyTooSlowError: (408, "too-slow"),
    NothingAddedError: (422, "nothing-added"),
    RequestError: (422, "invalid-request"),
    FilterError: (422, "invalid-filter"),
    ItemExistsError: (409, "item-exists"),
    ItemRefusedError: (422, "item-refused"),
    ItemNotFoundError: (404, "item-not-found"),
    NoImageError: (404, "no-image"),
    SpaceMismatchError: (409, "space-mismatch"),
    VersionNotFoundError: (404, "version-not-found"),
    GalleryNotFoundError: (404, "gallery-not-found"),
    AliasNotFoundError: (404, "alias-not-found"),
    GalleryNameError: (422, "invalid-request"),
    GalleryExistsError: (409, "gallery-exists"),
    GalleryAliasedError: (409, "gallery-aliased"),
    BundleMismatchError: (409, "bundle-mismatch"),
    GalleryNotRefinedError: (409, "gallery-not-refined"),
    RefinerNotFoundError: (422, "refiner-not-found"),
    RefinerMismatchError: (409, "refiner-mismatch"),
    RefinementError: (422, "invalid-refinement"),
    RefinerTrainingError: (422, "refiner-untrainable"),
    GalleryBusyError: (503, "gallery-busy"),
    UnlabelledGalleryError: (422, "calibration-unlabelled"),
    OneLabelError: (422, "calibration-one-label"),
    NotEnoughTrialsError: (422, "calibration-too-few-trials"),
    UnreachableTargetError: (422, "calibration-unreachable"),
    CalibrationError: (422, "calibration-impossible"),
    CalibrationMismatchError: (409, "calibration-mismatch"),
    CalibrationNotFoundError: (404, "calibration-not-found"),
    CalibrationRecordError: (500, "calibration-damaged"),
    ComparisonNotFoundError: (404, "comparison-not-found"),
    ComparisonRecordError: (500, "comparison-damaged"),
    DuplicatesNotFoundError: (404, "duplicates-not-found"),
    KeyStoreError: (503, "keys-damaged"),
    RedisAwayError: (503, "redis-away"),
    TooManyRequestsError: (429, "too-many-requests"),
    JobNotFoundError: (404, "job-not-found"),
    JobConflictError: (409, "job-conflict"),
    JobStoppedError: (409, "job-stopped"),
    JobsUnavailableError: (503, "jobs-unavailable"),
    SourceError: (422, "source-unusable"),
    DownloadError: (422, "source-unusable"),
    IndexDeviceError: (503, "device-failed"),
    NetworkDeviceError: (503, "device-failed"),
    StorageError: (507, "storage-failed"),
    BuildError: (422, "build-failed"),
    DamagedGalleryError: (503, "gallery-files-damaged"),
    GalleryError: (500, "gallery-damaged"),
}

_SERVER_STATUS = 500
# What these are about lies with the server, whose files, processes and devices they name; the other kinds of
# such a status are about what was asked for.
_OF_THE_SERVER = {
    *(kind for status, kind in PROBLEMS.values() if status >= _SERVER_STATUS),
    "bundle-mismatch",
} - {"gallery-busy", "package-missing"}


def status_and_kind(error: Exception) -> tuple[int, str]:
    """HTTP status of an error, and the last part of its type."""
    known = (PROBLEMS[base] for base in type(error).__mro__ if base in PROBLEMS)
    return next(known, (500, "internal-error"))


def told_to_some(kind: str, detail: str) -> str:
    """Detail of a problem for who may not see all galleries: no file and no process of the server."""
    if kind not in _OF_THE_SERVER:
        return detail
    return f"{kind.replace('-', ' ')}: the server's log has the details"


def detail_of(error: Exception, *, in_full: bool) -> str:
    """Sentence that tells of an error: in full to who may see all galleries, else see `told_to_some`."""
    detail = str(error)
    return detail if in_full else told_to_some(status_and_kind(error)[1], detail)


def problem_headers(error: Exception) -> dict[str, str]:
    """Headers of an answer that tells of an error: when it is worth coming again."""
    # Who holds a gallery is done in seconds, and who decodes an image too.
    if isinstance(error, (DecodingBusyError, GalleryBusyError)):
        return {"Retry-After": "2"}
    return dict(getattr(error, "headers", {}))


def problem_type(error: Exception) -> str:
    """Problem type of an error that is told beside others, or in a job."""
    return PREFIX + status_and_kind(error)[1]


def problem_members(error: Exception) -> dict[str, Any]:
    """Members of a problem document beyond the standard ones."""
    return dict(getattr(error, "members", {}))
