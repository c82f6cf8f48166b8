"""One attempt at a job: claimed once, ended once, and never against another worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from tests.service.jobs.conftest import Steps
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
    make_runner().run(job.id, 1)
    ended = store.get(job.id)
    assert (ended.state, ended.result, ended.worker, ended.attempt) == ("succeeded", {"n": 5}, "w1", 1)
    assert (ended.progress.done, ended.progress.total) == (5, 5)
    assert (ended.started_at is not None, ended.finished_at is not None) == (True, True)
    assert steps.cleaned == [job.id]


def test_a_ticket_is_not_honored_while_the_job_runs(job: Job, make_runner: MakeRunner, steps: Steps) -> None:
    steps.before = lambda _: make_runner("w2").run(job.id, 1)
    make_runner("w1").run(job.id, 1)
    assert steps.finished == [0, 1, 2, 3, 4]


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
    make_runner().run(job.id, 1)
    ended = store.get(job.id)
    assert (ended.state, problem in str(ended.problem), steps.cleaned) == ("failed", True, [job.id])
    assert ended.problem_type == f"urn:vicinal:problem:{kind}"


def test_a_cancelled_job_stops_after_the_batch_under_way(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    def cancel_at_two(number: int) -> None:
        if number == 2:
            store.request_cancel(job.id)

    steps.before = cancel_at_two
    make_runner().run(job.id, 1)
    assert (store.get(job.id).state, steps.finished) == ("cancelled", [0, 1, 2])
    assert store.create(new_job("steps", "shoes", {})).state == "queued"


def test_a_job_that_was_cancelled_while_it_waited_does_not_begin(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    store.request_cancel(job.id)
    make_runner().run(job.id, 1)
    assert (store.get(job.id).state, steps.finished) == ("cancelled", [])


def test_a_worker_that_shuts_down_leaves_the_rest_to_the_next(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    stopping = threading.Event()
    steps.before = lambda number: stopping.set() if number == 1 else None
    make_runner("w1", stopping).run(job.id, 1)
    assert (store.get(job.id).state, steps.finished, steps.cleaned) == ("queued", [0, 1], [])
    make_runner("w2").run(job.id, 2)
    ended = store.get(job.id)
    assert (ended.state, ended.worker, ended.attempt, steps.finished) == (
        "succeeded",
        "w2",
        2,
        [0, 1, 2, 3, 4],
    )
    assert (ended.progress.done, ended.progress.skipped) == (3, 2)


def test_a_worker_that_was_overtaken_stops_and_leaves_the_record_alone(
    store: JobStore, job: Job, make_runner: MakeRunner, steps: Steps
) -> None:
    def overtake(number: int) -> None:
        if number == 1:
            store.claim(job.id, 2, "w2")

    steps.before = overtake
    make_runner("w1").run(job.id, 1)
    assert (store.get(job.id).state, steps.finished, steps.cleaned) == ("running", [0, 1], [])


def test_a_job_without_its_gallery_fails(store: JobStore, job: Job, make_runner: MakeRunner) -> None:
    """Two that were accepted at the same moment: the later claim finds the gallery taken."""
    stray = store.save(new_job("steps", "shoes", {}))
    make_runner().run(stray.id, 1)
    assert (store.get(stray.id).state, job.id in str(store.get(stray.id).problem)) == ("failed", True)


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
    make_runner().run(job.id, 1)
    said = [(one["level"], one["text"]) for one in store.lines(job.id)]
    assert said == [
        ("info", "attempt 1 begins"),
        ("info", "step 0"),
        ("warning", "photo 1 is dark"),
        ("info", "step 1"),
        ("error", "the folder '/data' is gone"),
        ("info", "failed"),
    ]
