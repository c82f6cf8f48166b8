"""The store of jobs: records, claims and reservations, over SQLite and Redis alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from vicinal.service.errors import JobConflictError, JobNotFoundError
from vicinal.service.jobs import store as store_module
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.store import JobStore


def test_a_job_is_read_as_it_was_saved(store: JobStore, job: Job) -> None:
    assert store.get(job.id) == job


def test_a_damaged_record_is_said_to_be_and_holds_up_nothing(store: JobStore, job: Job) -> None:
    key = f"job:{job.id}"
    written = store.queue.get(key)[key]
    for place in range(0, len(written), 11):
        store.queue.put(key, written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
        with pytest.raises(JobNotFoundError, match="is damaged"):
            store.get(job.id)
    other = store.create(new_job("steps", job.gallery, {}))
    assert store.all() == [other]
    # What cannot be read is not kept.
    assert not store.queue.get(key)


def test_a_second_job_on_a_gallery_is_refused_with_the_first_one_s_id(store: JobStore, job: Job) -> None:
    with pytest.raises(JobConflictError) as refused:
        store.create(new_job("steps", "shoes", {}))
    assert refused.value.members == {"job": job.id}
    assert [one.id for one in store.all()] == [job.id]


def test_a_gallery_whose_job_was_finished_without_freeing_it_is_free(store: JobStore, job: Job) -> None:
    """The worker died between the two steps."""
    store.save(job.model_copy(update={"state": "failed"}))
    assert store.create(new_job("steps", "shoes", {})).state == "queued"


@pytest.mark.slow
def test_of_many_that_claim_an_attempt_one_gets_it(job: Job, open_queue: Callable[[], JobQueue]) -> None:
    stores = [JobStore(open_queue()) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda i: stores[i].claim(job.id, 1, f"w{i}"), range(8)))
    assert claims.count(True) == 1


@pytest.mark.slow
def test_of_many_that_reserve_a_gallery_one_gets_it(open_queue: Callable[[], JobQueue]) -> None:
    stores = [JobStore(open_queue()) for _ in range(8)]
    jobs = [store.save(new_job("steps", "shoes", {})) for store in stores]
    with ThreadPoolExecutor(8) as pool:
        holders = set(pool.map(lambda i: stores[i].reserve(jobs[i]), range(8)))
    assert len(holders) == 1


def test_old_finished_jobs_are_forgotten_and_leave_nothing(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_KEPT", 2)
    for i in range(5):
        one = store.create(new_job("steps", "shoes", {"number": i}))
        store.claim(one.id, 1, "w")
        store.beat(one.id, "w 1")
        store.keep_failures(one.id, ())
        store.keep_lines(one.id, [])
        store.finish(one.model_copy(update={"state": "succeeded"}))
    store.create(new_job("steps", "shoes", {"number": 5}))
    assert [one.request["number"] for one in store.all()] == [5, 4, 3]
    owners = {key.split(":")[1] for key in store.queue.all() if not key.startswith("gallery:")}
    assert owners == {one.id for one in store.all()}
