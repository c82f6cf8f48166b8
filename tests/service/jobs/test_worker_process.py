"""Workers that are killed, frozen or stopped in the middle of a job: it is finished once, by somebody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import MakeSettings
from tests.signals import signal_a_thread_beside
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.operations.reindex import OPERATION
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
N_ITEMS = 60
BATCH = 4
PER_COMMIT = 8
# The batch after the first that is committed.
HALTS_AT = 2 * PER_COMMIT // BATCH + 1

# A worker that waits after some batches to be killed, where it is told to.
HALTING_WORKER = f"""
import sys, threading
from functools import partial
from vicinal.indexer.jobs import embedding_run
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.operations.reindex import OPERATION
from vicinal.service.surfaces.jobs import OperationJob
from vicinal.service.settings import Settings

halt, n_batches = sys.argv[2], 0

class HaltingEmbedder(Embedder):
    def infer(self, tensors):
        global n_batches
        n_batches += 1
        if n_batches == {HALTS_AT} and halt == "to be killed":
            print("it waits", file=sys.stderr, flush=True)
            # Its other thread leaves signs of life.
            threading.Event().wait()
        return super().infer(tensors)

settings = Settings.model_validate_json(sys.argv[1])
embedder = HaltingEmbedder(ModelBundle.open(settings.bundle), device="cpu", threads=1, batch_size={BATCH})
embedding_run.RunOptions = partial(embedding_run.RunOptions, rows_per_commit={PER_COMMIT})
kinds = {{"reindex": OperationJob(OPERATION, ServedBundles(settings, embedder=embedder))}}
store = JobStore(settings.data_dir)
with JobWorker(store, kinds, heartbeat_seconds=0.25):
    threading.Event().wait()
"""

StartWorker = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def settings(data_dir: Path, catalog: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir, sources_dir=catalog.parent, job_heartbeat_seconds=0.25)


@pytest.fixture
def store(settings: Settings) -> JobStore:
    return JobStore(settings.data_dir)


@pytest.fixture
def job(store: JobStore, catalog: Path) -> Job:
    return store.create(new_job(OPERATION.name, "shoes", {"source": catalog.name}))


@pytest.fixture
def start(settings: Settings) -> Iterator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    """Starts a process of this project, and ends it in any case."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VICINAL_")}

    def run(arguments: list[str], **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env={**environment, **variables}, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def start_worker(start: Callable[[list[str]], subprocess.Popen[bytes]], settings: Settings) -> StartWorker:
    return lambda halt="": start(["-c", HALTING_WORKER, settings.model_dump_json(), halt])


def wait_until_it_waits(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    assert b"it waits\n" in iter(process.stderr.readline, b""), "it ended before"


def searched_ids(settings: Settings) -> list[str]:
    view = GalleryReader(Gallery(settings.galleries_path / "shoes")).view()
    positions = np.arange(view.n_positions)
    return sorted(item["id"] for item in view.items(positions[~view.is_dead(positions)]))


def with_the_source(settings: Settings, catalog: Path) -> list[str]:
    """What is searched when the job is done: what is there, and the source under its own name."""
    before = searched_ids(settings)
    return sorted([*before, *(f"{catalog.name}/{item_id}" for item_id in before)])


def test_a_killed_worker_s_job_is_finished_by_the_next_without_doubling_an_item(
    settings: Settings, store: JobStore, job: Job, start_worker: StartWorker, catalog: Path
) -> None:
    expected = with_the_source(settings, catalog)
    first = start_worker("to be killed")
    wait_until_it_waits(first)
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=30)
    assert store.get(job.id).state == "running"
    start_worker()
    wait_until(lambda: store.get(job.id).is_final)
    ended = store.get(job.id)
    assert (ended.state, ended.problem, ended.attempt) == ("succeeded", None, 2)
    assert ended.progress.skipped >= PER_COMMIT
    assert ended.progress.skipped + ended.progress.done == N_ITEMS
    assert searched_ids(settings) == expected
    assert ended.result is not None
    assert Gallery(settings.galleries_path / "shoes").active_version == ended.result["version"]


def test_the_command_takes_jobs_and_stops_in_order(
    settings: Settings,
    store: JobStore,
    job: Job,
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    variables = {
        "VICINAL_DATA_DIR": str(settings.data_dir),
        "VICINAL_BUNDLE": str(settings.bundle),
        "VICINAL_SOURCES_DIR": str(settings.sources_dir),
    }
    worker = start(["-m", "vicinal", "worker"], **variables)
    wait_until(lambda: store.get(job.id).is_final)
    signal_a_thread_beside(worker.pid, signal.SIGTERM)
    _, written = worker.communicate(timeout=60)
    assert (store.get(job.id).state, worker.returncode, b"Traceback" in written) == ("succeeded", 0, False)
