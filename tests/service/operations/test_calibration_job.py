"""Calibration jobs whose worker dies: the next one finishes them, and keeps one record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.types import Calibrate, MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import job_kinds

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

# A worker that scores so slowly that it can be killed in the middle.
SLOW_WORKER = """
import sys, threading, time
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.search.scorer import Scorer
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import job_kinds

def score_slowly(self, *arguments, **options):
    print("scoring", flush=True)
    time.sleep(600)

Scorer.score = score_slowly
settings = Settings.model_validate_json(sys.argv[1])
embedder = Embedder(ModelBundle.open(settings.bundle), device="cpu", threads=1)
kinds = job_kinds(ServedBundles(settings, embedder=embedder), None)
with JobWorker(JobStore(JobQueue(settings.jobs_path)), kinds, heartbeat_seconds=0.25):
    threading.Event().wait()
"""


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir)


@pytest.fixture
def store(settings: Settings) -> Iterator[JobStore]:
    opened = JobStore(JobQueue(settings.jobs_path))
    yield opened
    opened.queue.close()


@pytest.fixture
def job(store: JobStore) -> Job:
    return store.create(new_job("calibrate", "shoes", {"target": "fpir=5%"}))


@pytest.fixture
def work(settings: Settings, store: JobStore, embedder: object) -> Callable:
    """Works on jobs until one is finished."""

    def finish(job: Job) -> Job:
        kinds = job_kinds(ServedBundles(settings, embedder=embedder), None)
        with JobWorker(store, kinds, heartbeat_seconds=0.25):
            wait_until(lambda: store.get(job.id).is_final)
        return store.get(job.id)

    return finish


def test_a_killed_worker_s_calibration_is_made_by_the_next(
    settings: Settings, job: Job, gallery: Gallery, work: Callable[[Job], Job]
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VICINAL_")}
    command = [sys.executable, "-c", SLOW_WORKER, settings.model_dump_json()]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"scoring\n"
        first.send_signal(signal.SIGKILL)
    calibrations = CalibrationStore(gallery.calibrations_path)
    assert calibrations.history() == []
    ended = work(job)
    assert (ended.state, ended.attempt, ended.problem) == ("succeeded", 2, None)
    assert [record.id for record in calibrations.history()] == [job.id]
    assert calibrations.active(calibrations.get(job.id).pipeline).id == job.id


def test_a_record_that_was_kept_before_the_worker_died_is_not_made_again(
    job: Job, gallery: Gallery, calibrate: Calibrate, work: Callable[[Job], Job]
) -> None:
    calibrations = CalibrationStore(gallery.calibrations_path)
    made = calibrations.get(calibrate(gallery))
    kept = made.model_copy(update={"id": job.id, "threshold": 0.123, "scores_sha256": None})
    calibrations.add(kept, activate=False)
    ended = work(job)
    assert (ended.state, ended.result["threshold"]) == ("succeeded", 0.123)
    assert calibrations.active(made.pipeline).id == job.id
