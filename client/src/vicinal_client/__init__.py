"""Client of Vicinal, a self-hosted image search that knows when there is no match."""

from __future__ import annotations

from vicinal_client.client import AsyncClient, Client
from vicinal_client.errors import (
    AccessError,
    ConflictError,
    InvalidRequestError,
    JobFailedError,
    JobUnfinishedError,
    NoAnswerError,
    NotFoundError,
    ProblemError,
    ServerError,
    TimeLimitError,
    TooManyRequestsError,
    UnreadableAnswerError,
    UploadStoppedError,
    VicinalError,
)
from vicinal_client.models import Addition, Answer, Candidate, Gallery, Item, Job
from vicinal_client.requests import NewEmbedding, NewItem
from vicinal_client.retries import Retries
from vicinal_client.uploads import UploadFailure, UploadProgress, UploadResult

__all__ = [
    "AccessError",
    "Addition",
    "Answer",
    "AsyncClient",
    "Candidate",
    "Client",
    "ConflictError",
    "Gallery",
    "InvalidRequestError",
    "Item",
    "Job",
    "JobFailedError",
    "JobUnfinishedError",
    "NewEmbedding",
    "NewItem",
    "NoAnswerError",
    "NotFoundError",
    "ProblemError",
    "Retries",
    "ServerError",
    "TimeLimitError",
    "TooManyRequestsError",
    "UnreadableAnswerError",
    "UploadFailure",
    "UploadProgress",
    "UploadResult",
    "UploadStoppedError",
    "VicinalError",
]
