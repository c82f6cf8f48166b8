"""Fixtures of the jobs: a store whose clock a test moves, and a kind of jobs that does what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import Clock
from vicinal.service.jobs.records import Job, JobProgress, new_job
from vicinal.service.jobs.runner import JobContext, JobRunner
from vicinal.service.jobs.store import JobStore

LEASE = 20.0


class Steps:
    """A kind of job that finishes items one by one.

    Attributes:
        before: Called with the number of the next item; may raise.
        finished: Numbers of finished items, in the order in which they were.
        cleaned: Jobs that were cleaned up after.
        on_clean: Called with the job to clean up after.
    """

    def __init__(self, n: int = 5) -> None:
        self.n = n
        self.before: Callable[[int], None] = lambda _: None
        self.finished: list[int] = []
        self.cleaned: list[str] = []
        self.on_clean: Callable[[Job], None] = lambda _: None

    def run(self, context: JobContext) -> dict[str, Any]:
        skipped = len(self.finished)
        for number in range(skipped, self.n):
            self.before(number)
            self.finished.append(number)
            done = number + 1 - skipped
            context.report(
                JobProgress(
                    stage=f"step {number}",
                    stage_done=number + 1,
                    stage_total=self.n,
                    total=self.n,
                    done=done,
                    skipped=skipped,
                )
            )
        return {"n": len(self.finished)}

    def clean(self, job: Job) -> None:
        self.on_clean(job)
        self.cleaned.append(job.id)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> JobStore:
    return JobStore(tmp_path, clock=clock)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def make_runner(store: JobStore, steps: Steps) -> Callable[..., JobRunner]:
    """Makes a worker's runner that knows jobs of kind `steps`."""

    def make(stopping: threading.Event | None = None) -> JobRunner:
        return JobRunner(
            store,
            {"steps": steps},
            heartbeat_seconds=60.0,
            lease_seconds=LEASE,
            stopping=stopping or threading.Event(),
        )

    return make


@pytest.fixture
def job(store: JobStore) -> Job:
    """A job that waits."""
    return store.create(new_job("steps", "shoes", {"speed": "high"}))


def claim(store: JobStore, worker: str = "w1") -> Job:
    """The job that a worker takes."""
    taken = store.claim(worker, LEASE)
    assert taken is not None
    return taken
