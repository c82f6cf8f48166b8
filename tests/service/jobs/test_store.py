"""The store of jobs: records, attempts and leases, alike in SQLite and in PostgreSQL."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.service.jobs.conftest import LEASE, claim
from tests.waiting import Clock
from vicinal.indexer.state.schema import job_lists, jobs
from vicinal.service.errors import JobConflictError, JobNotFoundError, JobStoppedError, RequestError
from vicinal.service.jobs import store as store_module
from vicinal.service.jobs.records import Job, JobProgress, new_job
from vicinal.service.jobs.store import JobStore


@pytest.fixture
def store(galleries: Path, clock: Clock) -> JobStore:
    return JobStore(galleries.parent, clock=clock)


def test_a_job_is_read_as_it_was_kept(store: JobStore, job: Job) -> None:
    assert store.get(job.id) == job
    begun = claim(store)
    told = store.tell(begun, progress=JobProgress(stage="embed", done=3))
    assert (told.state, told.worker, told.progress.done, told.revision) == ("running", "w1", 3, 3)
    ended = store.finish(told, state="succeeded", result={"version": 7})
    assert store.all() == [store.get(job.id)] == [ended]
    assert (ended.result, ended.is_final, ended.request) == ({"version": 7}, True, {"speed": "high"})


def test_asking_makes_no_file(tmp_path: Path, clock: Clock) -> None:
    store = JobStore(tmp_path / "data", clock=clock)
    assert (store.all(), store.claim("w", LEASE), store.look()) == ([], None, None)
    assert not (tmp_path / "data").exists()


def test_a_damaged_record_is_said_to_be_and_holds_up_nothing(store: JobStore, job: Job) -> None:
    with store.state.changing() as rows:
        rows.connection.execute(jobs.update().values(request='{"speed": "low"}'))
    with pytest.raises(JobNotFoundError, match="is damaged"):
        store.get(job.id)
    other = store.create(new_job("steps", job.gallery, {}))
    assert store.all() == [other]
    with store.state.changing() as rows:
        rows.connection.execute(jobs.update().values(kind="other"))
    assert store.claim("w", LEASE) is None
    with store.state.reading() as rows:
        assert rows.count(jobs) == 0


def test_a_second_job_on_a_gallery_is_refused_with_the_first_one_s_id(store: JobStore, job: Job) -> None:
    with pytest.raises(JobConflictError) as refused:
        store.create(new_job("steps", "shoes", {}))
    assert refused.value.members == {"job": job.id}
    assert [one.id for one in store.all()] == [job.id]
    store.finish(claim(store), state="failed")
    assert store.create(new_job("steps", "shoes", {})).state == "queued"


def test_jobs_are_taken_in_their_order_each_once(store: JobStore, job: Job) -> None:
    other = store.create(new_job("steps", "boots", {}))
    assert [claim(store).id, claim(store).id, store.claim("w3", LEASE)] == [job.id, other.id, None]


def test_of_many_that_claim_a_job_one_gets_it(galleries: Path, job: Job, clock: Clock) -> None:
    taken: list[Job | None] = []
    stores = [JobStore(galleries.parent, clock=clock) for _ in range(6)]
    threads = [threading.Thread(target=lambda one=one: taken.append(one.claim("w", LEASE))) for one in stores]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.id for one in taken if one is not None] == [job.id]


def test_a_job_whose_worker_is_dead_is_taken_over_and_one_that_lives_is_not(
    store: JobStore, job: Job, clock: Clock
) -> None:
    begun = claim(store, "w1")
    clock.now += LEASE - 1
    store.beat(begun, LEASE)
    clock.now += LEASE - 1
    assert store.claim("w2", LEASE) is None
    clock.now += 2
    again = claim(store, "w2")
    assert (again.id, again.attempt, again.worker, again.started_at) == (job.id, 2, "w2", begun.started_at)
    for late in (lambda: store.tell(begun, problem="x"), lambda: store.finish(begun, state="failed")):
        with pytest.raises(JobStoppedError, match="overtaken"):
            late()
    assert store.get(job.id) == again


def test_who_starts_or_finds_the_store_back_gives_workers_time_for_a_sign(
    store: JobStore, job: Job, clock: Clock
) -> None:
    claim(store, "w1")
    clock.now += 10 * LEASE
    other = JobStore(store.state.folder, clock=clock)
    assert other.claim("w2", LEASE) is None
    clock.now += LEASE + 1
    assert claim(other, "w2").attempt == 2


def test_a_job_that_nobody_began_is_cancelled_at_once_and_one_under_way_is_asked(
    store: JobStore, job: Job
) -> None:
    assert (store.cancel(job.id).state, store.claim("w", LEASE)) == ("cancelled", None)
    other = store.create(new_job("steps", "shoes", {}))
    begun = claim(store)
    asked = store.cancel(other.id)
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert store.tell(begun, progress=JobProgress()).cancel_requested


def test_only_a_cancelled_job_is_resumed_and_runs_once(store: JobStore, job: Job) -> None:
    with pytest.raises(RequestError, match="is queued: only a cancelled one can be resumed"):
        store.resume(job.id)
    store.cancel(job.id)
    resumed = store.resume(job.id)
    assert (resumed.state, resumed.cancel_requested, resumed.finished_at) == ("queued", False, None)
    with pytest.raises(RequestError):
        store.resume(job.id)
    assert (claim(store).id, store.claim("w2", LEASE)) == (job.id, None)


def test_a_job_is_not_resumed_beside_another_on_its_gallery(store: JobStore, job: Job) -> None:
    store.cancel(job.id)
    other = store.create(new_job("steps", "shoes", {}))
    with pytest.raises(JobConflictError) as refused:
        store.resume(job.id)
    assert refused.value.members == {"job": other.id}


def test_old_finished_jobs_are_forgotten_and_leave_nothing(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_KEPT", 2)
    for i in range(5):
        one = store.create(new_job("steps", f"shoes-{i}", {"number": i}))
        store.keep_list(one.id, "failures", ["a"])
        store.keep_list(one.id, "log", [])
        store.finish(claim(store), state="succeeded")
    store.create(new_job("steps", "shoes", {"number": 5}))
    kept = {one.id for one in store.all()}
    assert sorted(one.request["number"] for one in store.all()) == [3, 4, 5]
    with store.state.reading() as rows:
        assert {*rows.values(job_lists.c.id)} < kept


def test_damaged_lists_are_as_if_there_were_none(
    store: JobStore, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    store.keep_list(job.id, "failures", ["a"])
    store.keep_list(job.id, "log", [{"text": "begins"}])
    assert store.list_of(job.id, "failures") == ["a"]
    with store.state.changing() as rows:
        rows.connection.execute(job_lists.update().values(content=b"x"))
    assert (store.list_of(job.id, "failures"), store.list_of(job.id, "log")) == ([], [])
    assert "is not what was written" in caplog.text
