"""Jobs whose worker died are taken up again, and living ones are left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.service.jobs.conftest import Steps
from tests.waiting import Clock
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.runner import JobRunner
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import Recovery

PATIENCE = 20.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recovery(store: JobStore, clock: Clock) -> Recovery:
    return Recovery(store, patience=PATIENCE, clock=clock)


@pytest.fixture
def running(store: JobStore, job: Job) -> Job:
    """A job that a worker has begun."""
    store.queue.dequeue()
    store.claim(job.id, 1, "w1")
    return store.save(job.model_copy(update={"state": "running", "attempt": 1, "worker": "w1"}))


def test_a_job_without_a_sign_of_life_is_queued_again(
    store: JobStore, running: Job, recovery: Recovery, clock: Clock
) -> None:
    first = recovery.look()
    clock.now = PATIENCE + 1
    assert (first, recovery.look(), store.queue.waiting()) == ([], [running.id], {(running.id, 2)})


def test_it_is_not_queued_twice(running: Job, recovery: Recovery, clock: Clock) -> None:
    found = []
    for clock.now in (0.0, 21.0, 42.0, 63.0, 84.0):
        found += recovery.look()
    assert found == [running.id]


def test_a_worker_that_leaves_signs_keeps_its_job(
    store: JobStore, running: Job, recovery: Recovery, clock: Clock
) -> None:
    found = []
    for number in range(5):
        clock.now += PATIENCE - 1
        store.beat(running.id, f"w1 {number}")
        found += recovery.look()
    assert found == []


def test_a_worker_that_died_between_claim_and_record_is_noticed(
    store: JobStore, job: Job, recovery: Recovery, clock: Clock
) -> None:
    store.queue.dequeue()
    store.claim(job.id, 1, "w1")
    recovery.look()
    clock.now = PATIENCE + 1
    recovery.look()
    assert store.queue.waiting() == {(job.id, 2)}


def test_a_job_that_waits_its_turn_is_left_in_the_queue(job: Job, recovery: Recovery, clock: Clock) -> None:
    recovery.look()
    clock.now = 10 * PATIENCE
    assert recovery.look() == []


def test_a_finished_job_stays_finished(
    store: JobStore, running: Job, recovery: Recovery, clock: Clock
) -> None:
    recovery.look()
    store.finish(running.model_copy(update={"state": "cancelled"}))
    clock.now = PATIENCE + 1
    assert recovery.look() == []


def test_two_watchers_bring_a_job_back_once(
    store: JobStore,
    running: Job,
    open_queue: Callable[[], JobQueue],
    clock: Clock,
    make_runner: Callable[..., JobRunner],
    steps: Steps,
) -> None:
    watchers = [Recovery(JobStore(open_queue()), patience=PATIENCE, clock=clock) for _ in range(2)]
    for clock.now in (0.0, PATIENCE + 1):
        for watcher in watchers:
            watcher.look()
    for worker in ("w2", "w3"):
        make_runner(worker).run(running.id, 2)
    assert (steps.finished, store.get(running.id).worker) == ([0, 1, 2, 3, 4], "w2")
