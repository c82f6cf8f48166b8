"""Overload: a search that would wait too long is answered as soon as its head is there."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.service.http.test_connections import SEARCH, answer_of, connected, rest_of
from tests.service.types import MakeSettings
from tests.waiting import wait_until
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving import connections
from vicinal.service.http.serving.server import serving
from vicinal.service.http.state import State, state_of

BODY = b'{"item_id": "plain/view 0.png"}'


@dataclass
class Line:
    """The queue of a server that can be full.

    Attributes:
        url: Address of the server.
        state: Its state.
        is_full: Whether searches are turned away.
        seen: Searches that the server had when a head came.
    """

    url: str
    state: State
    is_full: bool
    seen: list[int]


@contextmanager
def line_of(make_settings: MakeSettings, data_dir: Path, **changes: object) -> Iterator[Line]:
    app = create_app(make_settings(data_dir, **changes))
    state = state_of(app)
    line = Line("", state, is_full=True, seen=[])

    def check(n_present: int = 0) -> None:
        line.seen.append(n_present)
        if line.is_full:
            raise TooManyRequestsError("too many searches wait", seconds=3)

    state.searches.check = check  # type: ignore[method-assign]
    with serving(app) as url:
        line.url = url
        yield line


@pytest.fixture
def line(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[Line]:
    with line_of(make_settings, calibrated_dir) as made:
        yield made


def head(path: str = SEARCH, length: int = len(BODY), *further: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *further, "", ""]).encode()


def body_of(answer: bytes) -> dict[str, object]:
    return dict(json.loads(answer.partition(b"\r\n\r\n")[2]))


@pytest.mark.slow
@pytest.mark.parametrize("path", [SEARCH, SEARCH + "/batch", SEARCH + "?limit=1"])
def test_the_answer_comes_before_the_body(line: Line, path: str) -> None:
    with connected(line.url) as there:
        there.sendall(head(path, 1000, "X-Request-ID: mine-1"))
        answer = answer_of(there)
    assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert {b"retry-after: 3", b"X-Request-ID: mine-1", b"X-Content-Type-Options: nosniff"} <= set(
        answer.split(b"\r\n")
    )
    assert body_of(answer) == {
        "type": "urn:vicinal:problem:too-many-requests",
        "title": "Too many requests",
        "status": 429,
        "detail": "too many searches wait",
        "request_id": "mine-1",
    }


@pytest.mark.slow
def test_it_says_what_the_application_would(line: Line) -> None:
    early = httpx.post(line.url + SEARCH, content=BODY)
    # The application answers what comes from a page of this server.
    late = httpx.post(line.url + SEARCH, content=BODY, headers={"Origin": line.url})
    ids = early.json().pop("request_id"), late.json().pop("request_id")
    assert len(set(ids)) == 2
    assert int(early.headers["content-length"]) == len(early.content)
    assert [one.headers.pop("x-request-id") for one in (early, late)] == list(ids)
    assert early.status_code == late.status_code == 429
    assert early.json() | {"request_id": ""} == late.json() | {"request_id": ""}
    assert early.headers.keys() - {"date", "server"} == late.headers.keys() - {"date", "server"}


@pytest.mark.slow
def test_it_is_counted_and_logged(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vicinal.access"):
        answer = httpx.post(line.url + SEARCH, content=BODY)
    assert answer.status_code == 429
    (record,) = [one for one in caplog.records if one.name == "vicinal.access"]
    assert record.request_id == answer.headers["X-Request-ID"] == answer.json()["request_id"]  # type: ignore[attr-defined]
    assert (record.status, record.route) == (429, "/v1/galleries/{gallery}/search")  # type: ignore[attr-defined]
    metrics = httpx.get(f"{line.url}/metrics").text
    assert 'vicinal_problems_total{type="too-many-requests"} 1.0' in metrics
    counted = 'vicinal_http_request_seconds_count{method="POST",route="/v1/galleries/{gallery}/search"'
    assert f'{counted},status="429"}} 1.0' in metrics


@pytest.mark.slow
def test_the_connection_goes_on_with_the_next_request(line: Line) -> None:
    with connected(line.url) as there:
        there.sendall(head() + BODY[:9])
        assert answer_of(there).startswith(b"HTTP/1.1 429 ")
        line.is_full = False
        there.sendall(BODY[9:] + head() + BODY)
        assert answer_of(there).startswith(b"HTTP/1.1 200 ")
        line.is_full = True
        # Two in one piece are answered in order.
        there.sendall((head() + BODY) * 2)
        received = answer_of(there)
        while received.count(b"HTTP/1.1 429 ") < 2:
            received += there.recv(65_536)


@pytest.mark.slow
def test_answers_that_nobody_takes_in_are_not_heaped_up(line: Line) -> None:
    one = head(SEARCH, len(BODY), "X-Long: " + "a" * 4000) + BODY
    n_bytes, n_waits = 0, 0
    with socket.socket() as there:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        there.connect(("127.0.0.1", int(line.url.rpartition(":")[2])))
        there.settimeout(2.0)
        # Far more than the system keeps on the way.
        while n_bytes < 50_000 * len(one):
            try:
                n_bytes += there.send(one[n_bytes % len(one) :])
            except TimeoutError:
                n_waits += 1
                # A machine that stands still takes nothing in either.
                if n_bytes > 1000 * len(one) or n_waits == 10:
                    break
        assert 1000 * len(one) < n_bytes < 50_000 * len(one)
        there.settimeout(60.0)
        # Negative control: the server goes on as soon as they are taken in.
        n_received, rest = 0, b""
        while n_received < n_bytes // len(one):
            rest += there.recv(1_000_000)
            n_received += rest.count(b"HTTP/1.1 429 ")
            rest = rest[-12:]


@pytest.mark.slow
def test_an_answered_request_comes_before_one_that_is_turned_away(line: Line) -> None:
    line.is_full = False
    with connected(line.url) as there:
        there.sendall(head() + BODY + head(SEARCH, 0, "Connection: close"))
        received = rest_of(there)
    assert [received[at : at + 12] for at in (0, received.rindex(b"HTTP/1.1"))] == [
        b"HTTP/1.1 200",
        b"HTTP/1.1 422",
    ]


@pytest.mark.slow
def test_the_rest_of_its_body_is_not_taken_for_ever(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LINGER_SECONDS", 0.3)
    with connected(line.url) as there:
        there.sendall(head(SEARCH, 100_000))
        assert rest_of(there).startswith(b"HTTP/1.1 429 ")
    # Negative control: once the body is whole the connection stays.
    with connected(line.url) as there:
        there.sendall(head() + BODY)
        assert answer_of(there).startswith(b"HTTP/1.1 429 ")
        there.settimeout(1.0)
        with pytest.raises(TimeoutError):
            there.recv(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /v1/galleries/shoes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_what_does_not_search_is_answered(line: Line, request_head: bytes) -> None:
    with connected(line.url) as there:
        there.sendall(request_head)
        assert answer_of(there).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
@pytest.mark.parametrize("further", ["Connection: close", "Expect: 100-continue", "Origin: http://elsewhere"])
def test_what_needs_more_than_an_answer_goes_to_the_application(line: Line, further: str) -> None:
    with connected(line.url) as there:
        there.sendall(head(SEARCH, len(BODY), further))
        received = answer_of(there)
    expected = b"HTTP/1.1 403 " if "Origin" in further else b"HTTP/1.1 429 "
    assert received.startswith(expected)
    assert (b"connection: close" in received) == ("close" in further)


@pytest.mark.slow
def test_searches_whose_bodies_do_not_come_are_not_counted(line: Line) -> None:
    line.is_full = False
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(connected(line.url)).sendall(head())
        # Each is looked at here, and by the application.
        wait_until(lambda: len(line.seen) == 6)
        line.seen.clear()
        assert httpx.post(line.url + SEARCH, content=BODY).status_code == 200
        assert set(line.seen) == {0}


@pytest.mark.slow
def test_those_that_are_here_and_unanswered_are_counted(line: Line) -> None:
    line.is_full = False
    begun: list[object] = []
    go_on: list[bool] = []
    answered = line.state.searches.answered

    async def waiting(search: object) -> object:
        begun.append(search)
        while not go_on:
            await asyncio.sleep(0.01)
        return await answered(search)  # type: ignore[arg-type]

    line.state.searches.answered = waiting  # type: ignore[method-assign, assignment]

    def n_present() -> int:
        line.seen.clear()
        with connected(line.url) as asking:
            asking.sendall(head(SEARCH, 0))
            answer_of(asking)
        return line.seen[0]

    with ExitStack() as held:
        there = [held.enter_context(connected(line.url)) for _ in range(3)]
        for one in there:
            one.sendall(head() + BODY)
        wait_until(lambda: len(begun) == 3)
        assert n_present() == 3
        there[0].close()
        wait_until(lambda: n_present() == 2)
        go_on.append(True)
        for one in there[1:]:
            assert answer_of(one).startswith(b"HTTP/1.1 200 ")
        assert n_present() == 0
