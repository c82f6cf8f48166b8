"""Calibration jobs whose worker dies: the next one finishes them, and keeps one record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.types import Calibrate, MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import job_kinds

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir)


@pytest.fixture
def store(settings: Settings) -> JobStore:
    return JobStore(settings.data_dir)


@pytest.fixture
def job(store: JobStore) -> Job:
    return store.create(new_job("calibrate", "shoes", {"target": "fpir=5%"}))


@pytest.fixture
def work(settings: Settings, store: JobStore, embedder: object) -> Callable:
    """Works on jobs until one is finished."""

    def finish(job: Job) -> Job:
        kinds = job_kinds(ServedBundles(settings, embedder=embedder))
        with JobWorker(store, kinds, heartbeat_seconds=0.25):
            wait_until(lambda: store.get(job.id).is_final)
        return store.get(job.id)

    return finish


def test_a_record_that_was_kept_before_the_worker_died_is_not_made_again(
    job: Job, gallery: Gallery, calibrate: Calibrate, work: Callable[[Job], Job]
) -> None:
    calibrations = CalibrationStore(gallery.path)
    made = calibrations.get(calibrate(gallery))
    kept = made.model_copy(update={"id": job.id, "threshold": 0.123})
    calibrations.add(kept, activate=False)
    ended = work(job)
    assert (ended.state, ended.result["threshold"]) == ("succeeded", 0.123)
    assert calibrations.active(made.pipeline).id == job.id
