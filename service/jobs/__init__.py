"""Jobs: long work beside the searches, that survives the death of whoever does it."""

from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, JobFailure, JobProgress, new_job
from vicinal.service.jobs.runner import JobKind, JobRunner
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker

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
