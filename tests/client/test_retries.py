"""Retries: what comes again, how long it waits, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.client.conftest import Clock, Either, problem
from vicinal_client import (
    JobFailedError,
    NoAnswerError,
    ProblemError,
    TooManyRequestsError,
)

GALLERIES = {"galleries": []}
JOB = {"id": "7", "kind": "reindex", "gallery": "shop", "request": {}}
ADDITION = {"added": [], "unchanged": [], "skipped": [], "refused": [], "n_items": 0, "revision": 1}


class Script:
    """Answers one after the other; the last one again and again."""

    def __init__(self, *answers: httpx.Response | type[httpx.TransportError]) -> None:
        self.answers = answers
        self.n = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = self.answers[min(self.n, len(self.answers) - 1)]
        self.n += 1
        if isinstance(answer, type):
            raise answer("lost", request=request)
        return answer


def ok(body: object = GALLERIES) -> httpx.Response:
    return httpx.Response(200, json=body)


def busy(seconds: object) -> httpx.Response:
    answer = problem(429, "too-many-requests")
    answer.headers["retry-after"] = str(seconds)
    return answer


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
def test_reading_comes_again(status: int, connect: Callable[..., Either], clock: Clock) -> None:
    script = Script(problem(status, "x"), problem(status, "x"), ok())
    assert connect(script).list_galleries().galleries == []
    assert (script.n, clock.waits) == (3, [0.5, 1.0])


@pytest.mark.parametrize(
    "status", [400, 401, 403, 404, 405, 409, 410, 413, 415, 418, 422, 451, 500, 501, 507]
)
def test_what_would_be_refused_again_is_not_asked_again(status: int, connect: Callable[..., Either]) -> None:
    script = Script(problem(status, "x"), ok())
    with pytest.raises(ProblemError):
        connect(script).list_galleries()
    assert script.n == 1


CALLS: dict[str, tuple[Callable[[Either], Any], Any]] = {
    "search": (lambda client: client.search("shop", b"image"), None),
    "add_item": (lambda client: client.add_item("shop", b"image", id="a"), ADDITION),
    "patch_item": (lambda client: client.patch_item("shop", "a", label="b"), None),
    "start_calibration": (lambda client: client.start_calibration("shop"), JOB),
    "reindex_gallery": (lambda client: client.reindex_gallery("shop"), JOB),
    "delete_item": (lambda client: client.delete_item("shop", "a"), ""),
    "delete_items": (lambda client: client.delete_items("shop", ["a"]), None),
    "put_threshold": (lambda client: client.put_threshold("shop", 0.5), None),
    "activate_version": (lambda client: client.activate_version("shop", 1), None),
    "activate_calibration": (lambda client: client.activate_calibration("shop", "c"), None),
}
REPEATABLE = ("search", "add_item", "patch_item")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("failure", [httpx.ReadError, httpx.ReadTimeout, httpx.WriteError, 502, 503, 504])
def test_only_what_may_be_done_twice_comes_again_when_it_may_have_been_done(
    name: str, failure: Any, connect: Callable[..., Either]
) -> None:
    """The second answer is a refusal, which ends the call however it is read."""
    first = problem(failure, "x") if isinstance(failure, int) else failure
    script = Script(first, problem(404, "gallery-not-found"))
    with pytest.raises((ProblemError, NoAnswerError)) as raised:
        CALLS[name][0](connect(script))
    assert script.n == (2 if name in REPEATABLE else 1)
    assert (getattr(raised.value, "status", None) == 404) == (name in REPEATABLE)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ConnectTimeout, 408, 425, 429])
def test_anything_comes_again_that_was_surely_not_done(
    name: str, failure: Any, connect: Callable[..., Either]
) -> None:
    first = problem(failure, "x") if isinstance(failure, int) else failure
    script = Script(first, problem(404, "gallery-not-found"))
    with pytest.raises(ProblemError, match="404"):
        CALLS[name][0](connect(script))
    assert script.n == 2


def test_the_time_is_bounded(connect: Callable[..., Either], clock: Clock) -> None:
    script = Script(httpx.ConnectError)
    with pytest.raises(NoAnswerError):
        connect(script, retries={"attempts": None, "seconds": 30.0}).list_galleries()
    # 0.5 + 1 + 2 + 4 + 8; sixteen more would be too many.
    assert (script.n, clock.now) == (6, 15.5)


def test_the_server_says_when_to_come_again(connect: Callable[..., Either], clock: Clock) -> None:
    assert connect(Script(busy(9), busy(0), ok())).list_galleries().galleries == []
    assert clock.waits == [9.0, 1.0]


def test_who_is_asked_to_come_too_late_gives_up_at_once(connect: Callable[..., Either], clock: Clock) -> None:
    with pytest.raises(TooManyRequestsError) as raised:
        connect(Script(busy(3600), ok())).list_galleries()
    assert (raised.value.retry_after, clock.waits) == (3600.0, [])


@pytest.fixture
def jobs() -> Iterator[dict[str, Any]]:
    return iter(
        [
            JOB | {"state": "queued", "revision": 1},
            JOB | {"state": "queued", "revision": 1},
            JOB | {"state": "running", "revision": 4, "progress": {"done": 3, "total": 9}},
            JOB | {"state": "succeeded", "revision": 9, "result": {"n": 1}},
        ]
    )


def test_a_job_is_waited_for(
    jobs: Iterator[dict[str, Any]], connect: Callable[..., Either], clock: Clock
) -> None:
    seen: list[tuple[str, int]] = []
    client = connect(lambda _: ok(next(jobs)))
    done = client.wait_for_job(
        "7", every=2.0, on_progress=lambda job: seen.append((job.state, job.progress.done))
    )
    assert done.result == {"n": 1}
    assert seen == [("queued", 0), ("running", 3), ("succeeded", 0)]
    assert clock.waits == [2.0] * 3


def test_a_restart_of_the_server_is_waited_through(connect: Callable[..., Either], clock: Clock) -> None:
    script = Script(ok(JOB), httpx.ConnectError, httpx.ReadError, ok(JOB | {"state": "succeeded"}))
    assert connect(script).wait_for_job("7").state == "succeeded"
    assert clock.waits == [1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("state", "problem_text", "message"),
    [
        ("failed", "there is no source", "job '7' .reindex of gallery 'shop'. failed: there is no source"),
        ("cancelled", None, "was cancelled$"),
    ],
)
def test_a_job_without_a_result_is_an_error(
    state: str, problem_text: str | None, message: str, connect: Callable[..., Either]
) -> None:
    job = JOB | {"state": state, "problem": problem_text}
    with pytest.raises(JobFailedError, match=message) as raised:
        connect(Script(ok(job))).wait_for_job("7")
    assert raised.value.job.state == state
