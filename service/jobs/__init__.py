"""Jobs: long work beside the searches, that survives the death of whoever does it."""

from service.jobs.context import JobContext
from service.jobs.queue import JobQueue
from service.jobs.records import Job, JobFailure, JobProgress, new_job
from service.jobs.runner import JobKind, JobRunner
from service.jobs.store import JobStore
from service.jobs.worker import JobWorker

__all__ = [
    "Job",
    "JobContext",
    "JobFailure",
    "JobKind",
    "JobProgress",
    "JobQueue",
    "JobRunner",
    "JobStore",
    "JobWorker",
    "new_job",
]
