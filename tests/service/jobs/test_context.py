"""What a running job tells: how fast, how long still, and not too often."""

from __future__ import annotations

import threading

import pytest

from tests.service.jobs.conftest import claim
from tests.waiting import Clock
from vicinal.service.errors import JobStoppedError
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.jobs.runner import JobContext
from vicinal.service.jobs.store import JobStore


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def context(store: JobStore, job: Job, stopping: threading.Event, clock: Clock) -> JobContext:
    return JobContext(claim(store), store, stopping, clock=clock)


def embedding(done: int, total: int = 1000) -> JobProgress:
    return JobProgress(stage="embed", stage_done=done, stage_total=total, total=total, done=done)


def test_rate_and_time_left_follow_from_what_was_done_in_this_attempt(
    store: JobStore, job: Job, context: JobContext, clock: Clock
) -> None:
    context.report(embedding(200))
    first = store.get(job.id).progress
    clock.now += 10.0
    context.report(embedding(300))
    second = store.get(job.id).progress
    assert (first.rate, first.seconds_left) == (None, None)
    assert (second.rate, second.seconds_left) == (10.0, 70.0)


def test_a_new_stage_is_timed_anew(store: JobStore, job: Job, context: JobContext, clock: Clock) -> None:
    context.report(embedding(0))
    clock.now += 100.0
    context.report(JobProgress(stage="neighbors", stage_done=0, stage_total=50))
    clock.now += 5.0
    context.report(JobProgress(stage="neighbors", stage_done=10, stage_total=50))
    assert (store.get(job.id).progress.rate, store.get(job.id).progress.seconds_left) == (2.0, 20.0)


def test_the_store_is_not_asked_after_every_batch(
    store: JobStore, job: Job, context: JobContext, clock: Clock
) -> None:
    for done in range(100):
        clock.now += 0.01
        context.report(embedding(done))
    assert store.get(job.id).revision - job.revision <= 3


def test_a_stop_is_heard_at_once(context: JobContext, stopping: threading.Event) -> None:
    context.report(embedding(1))
    stopping.set()
    with pytest.raises(JobStoppedError) as stopped:
        context.report(embedding(2))
    assert stopped.value.why == "interrupted"
