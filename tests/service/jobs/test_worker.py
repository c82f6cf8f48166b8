"""A worker of this process: takes jobs, watches over others', and stops in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.service.jobs.conftest import Steps
from tests.waiting import wait_until
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker


@pytest.fixture
def start_worker(open_queue: Callable[[], JobQueue]) -> Iterator[Callable[..., JobWorker]]:
    """Starts a worker as one more process would, with heartbeats that none is too late for."""
    with ExitStack() as running:

        def start(steps: Steps, heartbeat_seconds: float = 60.0) -> JobWorker:
            worker = JobWorker(JobStore(open_queue()), {"steps": steps}, heartbeat_seconds=heartbeat_seconds)
            return running.enter_context(worker)

        yield start


def test_a_worker_takes_a_job_that_waits_until_it_stops(store: JobStore, job: Job, steps: Steps) -> None:
    worker = JobWorker(store, {"steps": steps})
    steps.on_clean = lambda _: worker._stopping.set()
    worker._work()
    assert store.get(job.id).result == {"n": 5}


@pytest.mark.slow
def test_a_worker_that_stops_in_mid_job_leaves_it_to_the_next(
    store: JobStore, job: Job, start_worker: Callable[[Steps], JobWorker]
) -> None:
    steps = Steps()
    at_two, may_go_on = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 2 and not at_two.is_set():
            at_two.set()
            may_go_on.wait(30)

    steps.before = pause
    first = start_worker(steps)
    assert at_two.wait(30)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    wait_until(first._stopping.is_set)
    may_go_on.set()
    stopping.join(30)
    wait_until(lambda: store.get(job.id).state == "queued")
    start_worker(steps)
    wait_until(lambda: store.get(job.id).is_final)
    assert (store.get(job.id).attempt, steps.finished) == (2, [0, 1, 2, 3, 4])


@pytest.mark.slow
def test_a_worker_finds_a_job_that_another_left_behind(
    store: JobStore, job: Job, steps: Steps, start_worker: Callable[..., JobWorker]
) -> None:
    store.queue.dequeue()
    store.claim(job.id, 1, "dead")
    store.save(job.model_copy(update={"state": "running", "attempt": 1, "worker": "dead"}))
    start_worker(steps, heartbeat_seconds=0.1)
    wait_until(lambda: store.get(job.id).is_final)
    assert (store.get(job.id).state, store.get(job.id).attempt) == ("succeeded", 2)
