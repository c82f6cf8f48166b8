"""Sharing: what an application has in common with other replicas and with workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from fastapi import FastAPI

from vicinal.models.embedder import Embedder
from vicinal.service.galleries.change_notices import ChangeNotices, NoticeOfWrites, announce_change
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.rate_limit import Admission, RateLimit
from vicinal.service.jobs import JobKind, JobQueue, JobStore, JobWorker
from vicinal.service.redis_link import RedisLink
from vicinal.service.settings import Settings
from vicinal.service.tasks.calibration_job import CALIBRATE, CalibrationJob
from vicinal.service.tasks.pipeline_comparison_job import COMPARE_PIPELINES, PipelineComparisonJob
from vicinal.service.tasks.reindex_job import REINDEX, ReindexJob
from vicinal.service.tasks.version_comparison_job import COMPARE, CompareJob

__all__ = ["install_sharing", "job_kinds", "open_jobs", "open_link", "sharing"]


def open_link(settings: Settings) -> RedisLink | None:
    """The link to Redis, or None when no address is set."""
    if settings.redis_url is None:
        return None
    return RedisLink(
        settings.redis_url,
        timeout_seconds=settings.redis_timeout_seconds,
        retry_seconds=settings.redis_retry_seconds,
    )


def open_jobs(settings: Settings, link: RedisLink | None) -> JobStore:
    """The store of jobs: in Redis when there is a link, else in a file of the data folder."""
    return JobStore(JobQueue(settings.jobs_path, link))


def job_kinds(
    settings: Settings, embedder: Callable[[], Embedder], link: RedisLink | None
) -> dict[str, JobKind]:
    """All that jobs can do.

    Args:
        settings: Where galleries, sources and bundles are.
        embedder: Gives the embedder of the service's bundle.
        link: Link to Redis, over which other replicas are told of new versions.
    """
    announce = partial(announce_change, link)
    return {
        CALIBRATE: CalibrationJob(settings, embedder, announce),
        COMPARE: CompareJob(settings, embedder),
        COMPARE_PIPELINES: PipelineComparisonJob(settings, embedder, announce),
        REINDEX: ReindexJob(settings, embedder, announce),
    }


def install_sharing(app: FastAPI, settings: Settings, link: RedisLink | None) -> None:
    """Give an application its jobs, limits and notices; nothing runs before `sharing`."""
    metrics: Metrics = app.state.metrics
    app.state.redis = link
    app.state.jobs = open_jobs(settings, link)
    app.state.job_kinds = job_kinds(settings, lambda: app.state.galleries.embedder, link)
    app.state.rate_limit = RateLimit(settings.rate_limit, link) if settings.rate_limit else None
    app.state.admission = Admission(settings.max_queue)
    app.state.admission.register(metrics.registry)
    app.state.galleries.embedder.cache.register(metrics.registry)
    app.state.galleries.drift.register(metrics.registry)
    app.state.stopping = threading.Event()
    if link is not None:
        link.register(metrics.registry)
        app.add_middleware(NoticeOfWrites, link=link)


@contextmanager
def sharing(app: FastAPI) -> Iterator[None]:
    """Keep the galleries current, and work on jobs if the settings say so, while the context lasts."""
    settings: Settings = app.state.settings
    with ExitStack() as running:
        running.callback(app.state.jobs.queue.close)
        running.enter_context(app.state.galleries.drift)
        running.enter_context(
            ChangeNotices(app.state.galleries, app.state.redis, poll_seconds=settings.poll_seconds)
        )
        if settings.run_jobs:
            seconds = settings.job_heartbeat_seconds
            running.enter_context(JobWorker(app.state.jobs, app.state.job_kinds, heartbeat_seconds=seconds))
        yield
