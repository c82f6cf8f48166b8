"""Fixtures of the jobs: the same queue over SQLite and Redis, and kinds of jobs that do what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, JobProgress, new_job
from vicinal.service.jobs.runner import JobContext, JobRunner
from vicinal.service.jobs.store import JobStore
from vicinal.service.redis_link import RedisLink


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


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def open_queue(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], JobQueue]:
    """Opens the queue as one more process would."""
    if request.param == "sqlite":
        return lambda: JobQueue(tmp_path / "jobs.db")
    server = request.getfixturevalue("redis_server")
    return lambda: JobQueue(
        tmp_path / "unused.db", RedisLink(server.url, timeout_seconds=60.0, retry_seconds=0.05)
    )


@pytest.fixture
def queue(open_queue: Callable[[], JobQueue]) -> Iterator[JobQueue]:
    opened = open_queue()
    yield opened
    opened.close()


@pytest.fixture
def store(queue: JobQueue) -> JobStore:
    return JobStore(queue)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def make_runner(store: JobStore, steps: Steps) -> Callable[..., JobRunner]:
    """Makes a worker's runner that knows jobs of kind `steps`."""

    def make(worker: str = "w1", stopping: threading.Event | None = None) -> JobRunner:
        return JobRunner(
            store,
            {"steps": steps},
            worker=worker,
            heartbeat_seconds=0.05,
            stopping=stopping or threading.Event(),
        )

    return make


@pytest.fixture
def job(store: JobStore) -> Job:
    """A job that waits."""
    return store.create(new_job("steps", "shoes", {"speed": "high"}))
