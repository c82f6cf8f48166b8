"""One attempt at a job: claimed once, ended once, and never against another worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.service.jobs.conftest import LEASE, Steps, claim
from tests.waiting import Clock
from vicinal.indexer.errors import BuildError
from vicinal.models.errors import BundleError
from vicinal.refine.errors import RefinementError
from vicinal.service.errors import RequestError
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.runner import JobRunner
from vicinal.service.jobs.store import JobStore

MakeRunner = Callable[..., JobRunner]


def test_a_job_succeeds_with_its_result(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    make_runner().run(claim(store))
    ended = store.get(job.id)
    assert (ended.state, ended.result, ended.worker, ended.attempt) == ("succeeded", {"n": 5}, "w1", 1)
    assert (ended.progress.done, ended.progress.total) == (5, 5)
    assert (ended.started_at is not None, ended.finished_at is not None) == (True, True)
    assert steps.cleaned == [job.id]


@pytest.mark.parametrize(
    ("error", "problem", "kind"),
    [
        (BuildError("12 images\ncould not be used"), "12 images could not be used", "build-failed"),
        (BundleError("the bundle is damaged"), "the bundle is damaged", "bundle-unusable"),
        (RefinementError("the refiner has 2 steps"), "the refiner has 2 steps", "invalid-refinement"),
        (KeyError("x"), "log", "internal-error"),
    ],
)
def test_a_failure_ends_the_job_with_its_reason(
    store: JobStore,
    job: Job,
    make_runner: MakeRunner,
    steps: Steps,
    error: Exception,
    problem: str,
    kind: str,
) -> None:
    def break_down(number: int) -> None:
        raise error

    steps.before = break_down
    make_runner().run(claim(store))
    ended = store.get(job.id)
    assert (ended.state, problem in str(ended.problem), steps.cleaned) == ("failed", True, [job.id])
    assert ended.problem_type == f"urn:vicinal:problem:{kind}"


def test_a_cancelled_job_stops_after_the_batch_under_way(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    def cancel_at_two(number: int) -> None:
        if number == 2:
            store.cancel(job.id)

    steps.before = cancel_at_two
    make_runner().run(claim(store))
    assert (store.get(job.id).state, steps.finished) == ("cancelled", [0, 1, 2])
    assert store.create(new_job("steps", "shoes", {})).state == "queued"


def test_a_job_that_was_cancelled_while_it_waited_to_go_on_does_not(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    store.tell(claim(store), state="queued")
    assert store.cancel(job.id).state == "queued"
    make_runner().run(claim(store))
    assert (store.get(job.id).state, steps.finished) == ("cancelled", [])


def test_a_worker_that_shuts_down_leaves_the_rest_to_the_next(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    stopping = threading.Event()
    steps.before = lambda number: stopping.set() if number == 1 else None
    make_runner(stopping).run(claim(store))
    assert (store.get(job.id).state, steps.finished, steps.cleaned) == ("queued", [0, 1], [])
    make_runner().run(claim(store, "w2"))
    ended = store.get(job.id)
    assert (ended.state, ended.worker, ended.attempt, steps.finished) == (
        "succeeded",
        "w2",
        2,
        [0, 1, 2, 3, 4],
    )
    assert (ended.progress.done, ended.progress.skipped) == (3, 2)


def test_a_worker_that_was_overtaken_stops_and_leaves_the_record_alone(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps, clock: Clock
) -> None:
    def overtake(number: int) -> None:
        if number == 1:
            clock.now += LEASE + 1
            assert claim(store, "w2").attempt == 2

    steps.before = overtake
    make_runner().run(claim(store, "w1"))
    assert (store.get(job.id).state, store.get(job.id).worker) == ("running", "w2")
    assert (steps.finished, steps.cleaned) == ([0, 1], [])


def test_a_job_goes_on_while_the_store_is_away_and_its_end_is_told_later(
    store: JobStore, job: Job, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    there = store.state.path

    class Stopping(threading.Event):
        n_waits = 0

        def wait(self, _: float | None = None) -> bool:
            """Wait between two tries to have the last word; the store is back in the third."""
            self.n_waits += 1
            if self.n_waits == 3:
                there.rmdir()
                there.with_suffix(".away").rename(there)
            return False

    def go_away(number: int) -> None:
        if number == 2:
            there.rename(there.with_suffix(".away"))
            there.mkdir()
            steps.before = lambda _: None

    stopping, steps.before = Stopping(), go_away
    runner = JobRunner(
        store, {"steps": steps}, heartbeat_seconds=60.0, lease_seconds=LEASE, stopping=stopping
    )
    runner.run(claim(store))
    assert (stopping.n_waits, steps.finished) == (3, [0, 1, 2, 3, 4])
    assert store.get(job.id).state == "succeeded"
    assert caplog.text.count("does not answer") == 1


def test_the_log_has_every_stage_what_was_warned_of_and_the_end_of_all_attempts(
    make_runner: MakeRunner, store: JobStore, job: Job, steps: Steps
) -> None:
    ours, theirs = logging.getLogger("vicinal.steps"), logging.getLogger("other")

    def warn(number: int) -> None:
        if number == 1:
            ours.warning("photo\n%d is dark", number)
            theirs.warning("not of the work")
            other = threading.Thread(target=ours.warning, args=("of another thread",))
            other.start()
            other.join()
        if number == 2:
            raise RequestError("the folder '/data' is gone")

    steps.before = warn
    make_runner().run(claim(store))
    said = [(one["level"], one["text"]) for one in store.list_of(job.id, "log")]
    assert said == [
        ("info", "attempt 1 begins"),
        ("info", "step 0"),
        ("warning", "photo 1 is dark"),
        ("info", "step 1"),
        ("error", "the folder '/data' is gone"),
        ("info", "failed"),
    ]
