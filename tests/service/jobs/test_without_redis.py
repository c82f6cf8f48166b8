"""Jobs while Redis is away: nothing is lost, the work goes on, and who asks is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.jobs.conftest import Steps
from tests.service.redis_server import RedisServer
from tests.waiting import wait_until
from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.redis_link import RedisLink

pytestmark = pytest.mark.slow


@pytest.fixture
def store(redis_server: RedisServer, tmp_path: Path, patience: float) -> JobStore:
    link = RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=0.05)
    return JobStore(JobQueue(tmp_path / "unused.db", link))


@pytest.fixture
def worker(redis_server: RedisServer, tmp_path: Path, steps: Steps, patience: float) -> Iterator[JobWorker]:
    link = RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=0.05)
    store = JobStore(JobQueue(tmp_path / "unused.db", link))
    with JobWorker(store, {"steps": steps}, heartbeat_seconds=0.1) as running:
        yield running


@pytest.fixture
def outage(redis_server: RedisServer, request: pytest.FixtureRequest) -> tuple[Callable[[], None], ...]:
    """How Redis goes away, and how it comes back."""
    if request.param == "stopped":
        return redis_server.stop, redis_server.start
    return redis_server.freeze, redis_server.thaw


@pytest.mark.parametrize(("outage", "patience"), [("stopped", 60.0), ("frozen", 0.5)], indirect=True)
def test_a_job_under_way_goes_on_and_its_end_is_told_later(
    store: JobStore,
    steps: Steps,
    worker: JobWorker,
    outage: tuple[Callable[[], None], Callable[[], None]],
) -> None:
    at_two, may_go_on = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 2:
            at_two.set()
            may_go_on.wait(30)

    steps.before = pause
    job = store.create(new_job("steps", "shoes", {}))
    go_away, come_back = outage
    assert at_two.wait(30)
    go_away()
    may_go_on.set()
    wait_until(lambda: len(steps.finished) == 5)
    come_back()
    wait_until(lambda: is_over(store, job))
    assert (store.get(job.id).state, steps.finished) == ("succeeded", [0, 1, 2, 3, 4])


def is_over(store: JobStore, job: Job) -> bool:
    try:
        return store.get(job.id).is_final
    except JobsUnavailableError:
        return False
