"""Problem types: the stable name and the HTTP status of every error that the project raises."""

from __future__ import annotations

from typing import Any

from vicinal.calibration import errors as calibration
from vicinal.indexer import errors as indexer
from vicinal.models import errors as models
from vicinal.refine import errors as refine
from vicinal.service import errors as service

PREFIX = "urn:vicinal:problem:"

# Roots of what the project raises on purpose: each error of them explains itself in one sentence.
ERRORS = (
    calibration.CalibrationError,
    indexer.IndexerError,
    models.ModelsError,
    refine.RefineError,
    service.ServiceError,
)

# HTTP status and last part of the type; an error without an entry of its own has that of its base.
PROBLEMS: dict[type[Exception], tuple[int, str]] = {
    models.NotAnImageError: (400, "not-an-image"),
    models.UnsupportedFormatError: (415, "unsupported-format"),
    models.ImageTooLargeError: (413, "image-too-large"),
    models.ImageTooSmallError: (422, "image-too-small"),
    models.BlankImageError: (422, "image-blank"),
    models.ImageError: (400, "not-an-image"),
    models.DecodingBusyError: (429, "decoding-busy"),
    models.EmbeddingError: (422, "invalid-embedding"),
    models.ReadyEmbeddingsError: (422, "ready-embeddings"),
    models.BundleError: (500, "bundle-unusable"),
    models.HubError: (422, "source-unusable"),
    models.ConfigError: (422, "invalid-configuration"),
    models.DatasetError: (422, "dataset-unusable"),
    models.EvaluationError: (422, "evaluation-impossible"),
    models.TrainingStoppedError: (409, "training-stopped"),
    models.MissingPackageError: (501, "package-missing"),
    service.BodyTooLargeError: (413, "body-too-large"),
    service.BodyTooSlowError: (408, "too-slow"),
    service.NothingAddedError: (422, "nothing-added"),
    service.RequestError: (422, "invalid-request"),
    indexer.FilterError: (422, "invalid-filter"),
    indexer.ItemExistsError: (409, "item-exists"),
    indexer.ItemRefusedError: (422, "item-refused"),
    indexer.ItemNotFoundError: (404, "item-not-found"),
    indexer.NotSetAsideError: (404, "item-not-set-aside"),
    indexer.NoImageError: (404, "no-image"),
    indexer.SpaceMismatchError: (409, "space-mismatch"),
    indexer.VersionNotFoundError: (404, "version-not-found"),
    indexer.GalleryNotFoundError: (404, "gallery-not-found"),
    indexer.AliasNotFoundError: (404, "alias-not-found"),
    indexer.GalleryNameError: (422, "invalid-request"),
    indexer.GalleryExistsError: (409, "gallery-exists"),
    indexer.GalleryAliasedError: (409, "gallery-aliased"),
    indexer.BundleMismatchError: (409, "bundle-mismatch"),
    indexer.GalleryNotRefinedError: (409, "gallery-not-refined"),
    refine.RefinerNotFoundError: (422, "refiner-not-found"),
    refine.RefinerMismatchError: (409, "refiner-mismatch"),
    refine.RefinementError: (422, "invalid-refinement"),
    refine.RefinerTrainingError: (422, "refiner-untrainable"),
    indexer.GalleryBusyError: (503, "gallery-busy"),
    calibration.UnlabelledGalleryError: (422, "calibration-unlabelled"),
    calibration.OneLabelError: (422, "calibration-one-label"),
    calibration.NotEnoughTrialsError: (422, "calibration-too-few-trials"),
    calibration.NotEnoughLabelsError: (422, "calibration-too-few-labels"),
    calibration.UnreachableTargetError: (422, "calibration-unreachable"),
    calibration.CalibrationError: (422, "calibration-impossible"),
    service.CalibrationMismatchError: (409, "calibration-mismatch"),
    service.CalibrationNotFoundError: (404, "calibration-not-found"),
    service.CalibrationRecordError: (500, "calibration-damaged"),
    service.ComparisonNotFoundError: (404, "comparison-not-found"),
    service.ComparisonRecordError: (500, "comparison-damaged"),
    service.DuplicatesNotFoundError: (404, "duplicates-not-found"),
    service.VerdictNotFoundError: (404, "verdict-not-found"),
    service.SearchNotFoundError: (404, "search-not-found"),
    service.AnswerNotFoundError: (404, "answer-not-found"),
    service.UnknownLabelError: (422, "label-unknown"),
    service.KeyStoreError: (503, "keys-damaged"),
    service.RedisAwayError: (503, "redis-away"),
    service.TooManyRequestsError: (429, "too-many-requests"),
    service.JobNotFoundError: (404, "job-not-found"),
    service.JobConflictError: (409, "job-conflict"),
    service.JobStoppedError: (409, "job-stopped"),
    service.JobsUnavailableError: (503, "jobs-unavailable"),
    indexer.SourceError: (422, "source-unusable"),
    indexer.DownloadError: (422, "source-unusable"),
    indexer.ClusterError: (503, "cluster-unusable"),
    indexer.IndexDeviceError: (503, "device-failed"),
    models.NetworkDeviceError: (503, "device-failed"),
    indexer.EngineAwayError: (503, "engine-away"),
    indexer.EngineTableError: (503, "engine-table-lost"),
    indexer.EngineError: (503, "engine-unusable"),
    indexer.HomeError: (503, "home-away"),
    indexer.StorageError: (507, "storage-failed"),
    indexer.BuildError: (422, "build-failed"),
    indexer.DamagedGalleryError: (503, "gallery-files-damaged"),
    indexer.GalleryError: (500, "gallery-damaged"),
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
    if isinstance(error, (models.DecodingBusyError, indexer.GalleryBusyError)):
        return {"Retry-After": "2"}
    return dict(getattr(error, "headers", {}))


def problem_type(error: Exception) -> str:
    """Problem type of an error that is told beside others, or in a job."""
    return PREFIX + status_and_kind(error)[1]


def problem_members(error: Exception) -> dict[str, Any]:
    """Members of a problem document beyond the standard ones."""
    return dict(getattr(error, "members", {}))
