"""Overload: a search that would wait too long is answered as soon as its head is there."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.http.wires import SEARCH, Desk, get, opened, post
from tests.service.types import MakeSettings
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving import connections
from vicinal.service.http.serving.overload import Overload
from vicinal.service.http.state import state_of

BODY = b'{"item_id": "plain/view 0.png"}'
HEAD = post(SEARCH, len(BODY))


@dataclass
class Line:
    """The queue of a server that can be full.

    Attributes:
        seen: Searches that the server had when a head came.
    """

    is_full: bool = True
    seen: list[int] = field(default_factory=list)

    def check(self, n_present: int = 0) -> None:
        self.seen.append(n_present)
        if self.is_full:
            raise TooManyRequestsError("too many searches wait", seconds=3)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def app(calibrated_dir: Path, make_settings: MakeSettings, line: Line) -> FastAPI:
    """The application of the same line."""
    made = create_app(make_settings(calibrated_dir))
    state_of(made).searches.check = line.check  # type: ignore[method-assign]
    return made


@pytest.fixture
def desk(app: FastAPI, line: Line) -> Iterator[Desk]:
    with opened(overload=lambda: Overload(line, state_of(app).metrics)) as made:  # type: ignore[arg-type]
        yield made


@pytest.mark.parametrize("path", [SEARCH, SEARCH + "/batch", SEARCH + "?limit=1"])
def test_the_answer_comes_before_the_body(desk: Desk, path: str) -> None:
    answer = desk.connect("127.0.0.1", post(path, 1000, "X-Request-ID: mine-1")).answer()
    assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert {b"retry-after: 3", b"X-Request-ID: mine-1", b"X-Content-Type-Options: nosniff"} <= set(
        answer.split(b"\r\n")
    )
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "type": "urn:vicinal:problem:too-many-requests",
        "title": "Too many requests",
        "status": 429,
        "detail": "too many searches wait",
        "request_id": "mine-1",
    }


def test_it_says_what_the_application_would(desk: Desk, app: FastAPI) -> None:
    sent = {"X-Request-ID": "mine-1", "Content-Type": "application/json"}
    head, _, body = (
        desk.connect("127.0.0.1", post(SEARCH, len(BODY), "X-Request-ID: mine-1"))
        .answer()
        .partition(b"\r\n\r\n")
    )
    late = TestClient(app).post(SEARCH, content=BODY, headers=sent)
    early = dict(one.split(b": ", 1) for one in head.lower().split(b"\r\n")[1:])
    assert late.status_code == 429
    assert json.loads(body) == late.json()
    assert {name.decode(): value.decode() for name, value in early.items()} == {
        name: value.lower() for name, value in late.headers.items()
    }


def test_it_is_counted_and_logged(desk: Desk, app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vicinal.access"):
        answer = desk.connect("127.0.0.1", HEAD).answer()
    (record,) = [one for one in caplog.records if one.name == "vicinal.access"]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["request_id"] == record.request_id  # type: ignore[attr-defined]
    assert (record.status, record.route) == (429, "/v1/galleries/{gallery}/search")  # type: ignore[attr-defined]
    metrics = TestClient(app).get("/metrics").text
    assert 'vicinal_problems_total{type="too-many-requests"} 1.0' in metrics
    counted = 'vicinal_http_request_seconds_count{method="POST",route="/v1/galleries/{gallery}/search"'
    assert f'{counted},status="429"}} 1.0' in metrics


def test_the_connection_goes_on_with_the_next_request(desk: Desk, line: Line) -> None:
    wire = desk.connect("127.0.0.1", HEAD + BODY[:9])
    line.is_full = False
    wire.send(BODY[9:] + HEAD + BODY)
    line.is_full = True
    # Two in one piece are answered in order.
    wire.send((HEAD + BODY) * 2)
    assert (wire.statuses, wire.is_open) == ([429, 200, 429, 429], True)


def test_answers_that_nobody_takes_in_are_not_heaped_up(desk: Desk) -> None:
    wire = desk.connect()
    wire.is_stuck = True
    wire.send((HEAD + BODY) * 2000)
    # It answers no more than the system takes in for the client; then it is the application that waits.
    assert len(wire.unsent) < 100_000
    assert desk.n_begun == 1
    # Negative control: the server goes on as soon as they are taken in.
    wire.take_in()
    statuses = wire.statuses
    assert (len(statuses), set(statuses)) == (2000, {200, 429})


def test_what_comes_behind_an_unanswered_request_waits_its_turn(desk: Desk, line: Line) -> None:
    line.is_full = False
    wire = desk.connect("127.0.0.1", HEAD + BODY[:-1])
    line.is_full = True
    wire.send(BODY[-1:] + HEAD + BODY)
    # It is the application that turns it away, in its turn.
    assert (wire.statuses, desk.n_begun) == ([200, 200], 2)


def test_the_rest_of_its_body_is_not_taken_for_ever(desk: Desk) -> None:
    endless = desk.connect("127.0.0.1", post(SEARCH, 100_000))
    # Negative control: once the body is whole the connection stays.
    whole = desk.connect("127.0.0.1", HEAD + BODY)
    assert (endless.statuses, whole.statuses) == ([429], [429])
    desk.loop.move_on(connections._LINGER_SECONDS + 0.1)
    assert (endless.is_open, whole.is_open) == (False, True)


@pytest.mark.parametrize("path", ["/v1/galleries/shoes", "/livez"])
def test_what_does_not_search_is_answered(desk: Desk, path: str) -> None:
    assert desk.status(get(path)) == 200


@pytest.mark.parametrize("further", ["Connection: close", "Expect: 100-continue", "Origin: http://elsewhere"])
def test_what_needs_more_than_an_answer_goes_to_the_application(desk: Desk, further: str) -> None:
    wire = desk.connect("127.0.0.1", post(SEARCH, len(BODY), further))
    assert (desk.n_begun, b"HTTP/1.1 429" in wire.received) == (1, False)


def test_those_that_are_here_and_unanswered_are_counted(desk: Desk, line: Line) -> None:
    line.is_full = False
    slow = post(SEARCH + "?slow", len(BODY))

    def n_present() -> int:
        desk.connect("127.0.0.1", HEAD).leave()
        return line.seen[-1]

    # Nobody counts whose body does not come.
    waiting = [desk.connect("127.0.0.1", HEAD) for _ in range(3)]
    assert n_present() == 0
    there = [desk.connect("127.0.0.1", slow + BODY) for _ in range(3)]
    assert n_present() == 3
    there[0].leave()
    assert n_present() == 2
    desk.go_on.set()
    desk.loop.settle()
    assert [wire.statuses for wire in there[1:]] == [[200], [200]]
    assert n_present() == 0
    assert all(wire.is_open for wire in waiting)
