"""What a route gets from the application it belongs to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.metrics import Metrics
from vicinal.service.jobs import JobStore
from vicinal.service.redis_link import RedisLink
from vicinal.service.settings import Settings
from vicinal.service.tasks.calibration_job import CALIBRATE, CalibrationJob
from vicinal.service.tasks.reindex_job import REINDEX, ReindexJob
from vicinal.service.tasks.version_comparison_job import COMPARE, CompareJob

__all__ = [
    "CalibrationJobDependency",
    "CompareDependency",
    "GalleriesDependency",
    "JobsDependency",
    "MetricsDependency",
    "RedisDependency",
    "ReindexDependency",
    "SettingsDependency",
]


def _galleries(request: Request) -> OpenGalleries:
    galleries: OpenGalleries = request.app.state.galleries
    return galleries


def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


def _jobs(request: Request) -> JobStore:
    jobs: JobStore = request.app.state.jobs
    return jobs


def _redis(request: Request) -> RedisLink | None:
    link: RedisLink | None = request.app.state.redis
    return link


def _reindex(request: Request) -> ReindexJob:
    reindex: ReindexJob = request.app.state.job_kinds[REINDEX]
    return reindex


def _calibration_job(request: Request) -> CalibrationJob:
    calibration: CalibrationJob = request.app.state.job_kinds[CALIBRATE]
    return calibration


def _compare(request: Request) -> CompareJob:
    compare: CompareJob = request.app.state.job_kinds[COMPARE]
    return compare


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


CalibrationJobDependency = Annotated[CalibrationJob, Depends(_calibration_job)]
CompareDependency = Annotated[CompareJob, Depends(_compare)]
GalleriesDependency = Annotated[OpenGalleries, Depends(_galleries)]
JobsDependency = Annotated[JobStore, Depends(_jobs)]
MetricsDependency = Annotated[Metrics, Depends(_metrics)]
RedisDependency = Annotated[RedisLink | None, Depends(_redis)]
ReindexDependency = Annotated[ReindexJob, Depends(_reindex)]
SettingsDependency = Annotated[Settings, Depends(_settings)]
