"""A worker of this process: takes jobs, watches over others', and stops in order."""

from __future__ import annotations

import pytest

from tests.service.jobs.conftest import Steps
from tests.waiting import wait_until
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker


def test_a_worker_takes_a_job_that_waits_until_it_stops(store: JobStore, job: Job, steps: Steps) -> None:
    worker = JobWorker(store, {"steps": steps})
    steps.on_clean = lambda _: worker._stopping.set()
    worker._work()
    assert store.get(job.id).result == {"n": 5}


@pytest.mark.slow
def test_a_worker_finds_a_job_that_another_left_behind(store: JobStore, job: Job, steps: Steps) -> None:
    store.queue.dequeue()
    store.claim(job.id, 1, "dead")
    store.save(job.model_copy(update={"state": "running", "attempt": 1, "worker": "dead"}))
    with JobWorker(store, {"steps": steps}, heartbeat_seconds=0.1):
        wait_until(lambda: store.get(job.id).is_final)
    assert (store.get(job.id).state, store.get(job.id).attempt) == ("succeeded", 2)
