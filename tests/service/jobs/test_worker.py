"""A worker of this process takes jobs, those too that another left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.jobs.conftest import LEASE, Steps, claim
from tests.waiting import Clock
from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker


def test_a_worker_finishes_what_another_left_behind(
    store: JobStore, job: Job, steps: Steps, clock: Clock
) -> None:
    claim(store, "dead")
    worker = JobWorker(store, {"steps": steps})
    assert not worker.take()
    clock.now += LEASE + 1
    assert (worker.take(), worker.take()) == (True, False)
    ended = store.get(job.id)
    assert (ended.state, ended.result, ended.attempt) == ("succeeded", {"n": 5}, 2)


def test_a_place_that_no_wait_mends_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_bytes(b"no database at all " * 1000)
    with pytest.raises(JobsUnavailableError, match="is damaged"):
        JobWorker(JobStore(tmp_path), {})
