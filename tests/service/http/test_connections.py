"""Connections: slow ones, too many of them and large heads cost others nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.logs import said_by
from tests.service.http.wires import BODY_TO_COME, GET, SEARCH, SECONDS, Desk, get, opened, post
from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app
from vicinal.service.http.serving import connections
from vicinal.service.http.serving.connections import most_connections

LIVE = get("/livez")
WHOLE = post(SEARCH, 2) + b"{}"
SLOW, WAITING = get("/slow"), get("/waiting")
MOST = 12


@pytest.fixture
def desk() -> Iterator[Desk]:
    with opened() as made:
        yield made


@pytest.fixture
def crowded() -> Iterator[Desk]:
    """A server that takes a few connections."""
    with opened(most=MOST) as made:
        yield made


@pytest.fixture
def narrow() -> Iterator[Desk]:
    """A server that takes three."""
    with opened(most=3) as made:
        yield made


def test_headers_that_come_too_slowly_are_408(desk: Desk) -> None:
    wire = desk.connect("127.0.0.1", b"GET /livez HTTP/1.1\r\nHost: ")
    while wire.is_open and desk.loop.now < 1000 + 2 * SECONDS:
        desk.loop.move_on(0.5)
        wire.send(b"a")
    assert desk.loop.now == 1000 + SECONDS
    answer = wire.answer()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:vicinal:problem:too-slow" in answer


def test_a_connection_on_which_nothing_comes_is_closed(desk: Desk) -> None:
    wire = desk.connect()
    desk.loop.move_on(SECONDS - 0.1)
    assert wire.is_open
    desk.loop.move_on(0.2)
    assert (wire.is_open, wire.received) == (False, b"")


def test_the_second_request_of_a_connection_has_as_little_time(desk: Desk) -> None:
    wire = desk.connect("127.0.0.1", LIVE)
    # Between two requests a connection rests longer than that.
    desk.loop.move_on(2 * SECONDS)
    wire.send(b"GET /li")
    desk.loop.move_on(SECONDS)
    assert wire.statuses == [200, 408]


@pytest.mark.parametrize("kind", ["Content-Length: 9000", "Transfer-Encoding: chunked"])
def test_a_body_that_comes_too_slowly_is_408(desk: Desk, kind: str) -> None:
    head = f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode()
    wire = desk.connect("127.0.0.1", head)
    for _ in range(2 * int(SECONDS)):
        desk.loop.move_on(1.0)
        if "Length" in kind and wire.is_open:
            wire.send(b"{")
    assert wire.statuses == [408]


@pytest.mark.parametrize(("seconds", "status"), [(SECONDS + 60, 200), (SECONDS + 63, 408)])
def test_a_large_body_gets_the_time_that_it_needs(desk: Desk, seconds: float, status: int) -> None:
    # A minute's worth of bytes, and a second's.
    body = b" " * 1_000_000
    wire = desk.connect("127.0.0.1", post(SEARCH, len(body)), body[:-1])
    desk.loop.move_on(seconds)
    wire.send(body[-1:])
    assert wire.statuses == [status]


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_who_leaves_before_the_body_is_whole_is_no_error_of_the_server(
    calibrated_dir: Path, make_settings: MakeSettings, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    app, sent = create_app(make_settings(calibrated_dir)), list[object]()
    headers = [(b"host", b"127.0.0.1"), (b"content-type", kind.encode()), (b"content-length", b"9000")]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
    scope |= {"method": "POST", "path": SEARCH, "raw_path": SEARCH.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": ""}
    comes = iter([{"type": "http.request", "body": b"--x", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, object]:
        return dict(next(comes))

    async def send(message: object) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    metrics = TestClient(app).get("/metrics").text
    counted = 'vicinal_http_request_seconds_count{method="POST",route="/v1/galleries/{gallery}/search"'
    assert f'{counted},status="none"}} 1.0' in metrics
    assert sent == []
    assert "internal-error" not in metrics
    assert said_by(caplog, "vicinal.service.http", logging.ERROR) == []


def test_one_connection_too_many_is_503_and_told_why(narrow: Desk) -> None:
    # Each is in the middle of a request.
    held = [narrow.connect("127.0.0.1", BODY_TO_COME) for _ in range(3)]
    wire = narrow.connect("127.0.0.1", GET)
    answer = wire.answer()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"too-many-connections" in answer
    assert b"retry-after: 1" in answer
    assert [one.is_open for one in (*held, wire)] == [True] * 3 + [False]
    held[0].leave()
    assert narrow.status(GET) == 200


ATTACKS = {
    "nothing": b"",
    "half of a head": b"GET /livez HT",
    "a head that goes on": b"GET /livez HTTP/1.1\r\nX-A: ",
    "a body to come": BODY_TO_COME,
    "one answer and no more": LIVE,
    "half of a second head": LIVE + b"GET /li",
}


@pytest.mark.parametrize("sent", ATTACKS.values(), ids=ATTACKS.keys())
def test_one_address_keeps_nobody_else_out(crowded: Desk, sent: bytes) -> None:
    """Though it opens far more connections than there may be, and again whenever one is closed."""
    for _ in range(3 * MOST):
        crowded.connect("127.0.0.2", sent)
    for _ in range(5):
        assert [crowded.status(one, "127.0.0.3") for one in (LIVE, WHOLE)] == [200, 200]
        crowded.connect("127.0.0.2", sent)


@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", BODY_TO_COME], ids=["nothing", "head", "body"])
def test_many_addresses_keep_nobody_out_who_says_what_it_wants(crowded: Desk, sent: bytes) -> None:
    # Half as many addresses as connections: one has two of them at any time, and gives one up.
    for number in range(2 * MOST):
        crowded.connect(f"127.0.1.{number // 4}", sent)
    assert crowded.status(WHOLE, "127.0.0.3") == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_are_answered_where_all_connections_are_at_work(crowded: Desk, path: str) -> None:
    for number in range(MOST):
        crowded.connect(f"127.0.2.{number}", WAITING)
    # The reserve is not to be had by those who say nothing either.
    for number in range(300):
        crowded.connect("127.0.3.1" if number % 2 else "127.0.3.2", b"GET")
    answer = crowded.connect("127.0.0.1", get(path)).answer()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer
    other = crowded.connect("127.0.0.1", GET).answer()
    assert other.startswith(b"HTTP/1.1 503 ")
    assert b"too-many-connections" in other


def test_an_address_alone_has_all_connections(crowded: Desk) -> None:
    for _ in range(MOST - 1):
        crowded.connect("127.0.0.2", WAITING)
    assert crowded.status(WHOLE, "127.0.0.2") == 200
    crowded.connect("127.0.0.2", WAITING)
    # Negative control: more than all it gets not, but for the probes.
    statuses = [crowded.status(one, "127.0.0.2") for one in (GET, LIVE, get("/readyz"))]
    assert statuses == [503, 200, 200]


def test_hundreds_of_connections_of_one_address_lose_no_request() -> None:
    """Nine of ten that there may be, which come at once and stay, beside probes from the same address."""
    with opened(most=1000) as desk:
        many = [desk.connect() for _ in range(900)]
        for _ in range(2):
            for wire in many:
                wire.send(GET)
            assert desk.status(LIVE) == 200
            assert {status for wire in many for status in wire.statuses} == {200}


def test_who_wants_in_cuts_off_nobody_at_work_and_comes_next(crowded: Desk) -> None:
    """Once it was turned away, the address that has all connections gets no more than its share."""
    many = [crowded.connect("127.0.0.2", SLOW) for _ in range(MOST)]
    assert crowded.status(WHOLE) == 503
    crowded.go_on.set()
    crowded.loop.settle()
    assert [wire.statuses for wire in many] == [[200]] * MOST
    for wire in many:
        wire.send(SLOW)
    answers = [wire.answer() for wire in many]
    assert {one[:12] for one in answers} == {b"HTTP/1.1 200"}
    closed = [wire for wire, one in zip(many, answers, strict=True) if b"connection: close" in one]
    assert len(closed) >= MOST // 4
    assert not any(wire.is_open for wire in closed)
    assert crowded.status(WHOLE) == 200
    # Negative control: what it opens within its share stays open.
    many[-1].leave()
    assert b"connection: close" not in crowded.connect("127.0.0.2", SLOW).answer()


def test_who_takes_nothing_in_of_its_answers_keeps_nobody_out(crowded: Desk) -> None:
    for _ in range(MOST):
        wire = crowded.connect("127.0.0.2")
        wire.is_stuck = True
        wire.send(get("/large"))
    # A client that is only slow keeps its place.
    assert crowded.status(WHOLE) == 503
    crowded.loop.move_on(connections._STALLED_SECONDS + 0.1)
    assert crowded.status(WHOLE) == 200


def test_a_client_that_takes_nothing_in_is_cut_off(desk: Desk) -> None:
    wire, slow = desk.connect(), desk.connect()
    for one in (wire, slow):
        one.is_stuck = True
        one.send(get("/large"))
    desk.loop.move_on(connections._SEND_SECONDS - 1)
    slow.take_in()
    desk.loop.move_on(2)
    assert (wire.is_open, slow.is_open, slow.statuses) == (False, True, [200])


def test_an_idle_connection_makes_room(narrow: Desk) -> None:
    idle = [narrow.connect("127.0.0.1", LIVE) for _ in range(3)]
    assert [wire.statuses for wire in idle] == [[200]] * 3
    assert [narrow.status(one) for one in (LIVE, GET)] == [200, 200]
    # Negative control: the others still answer.
    assert [wire.is_open for wire in idle] == [False, True, True]


def test_large_headers_are_431(desk: Desk) -> None:
    wire = desk.connect("127.0.0.1", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
    for _ in range(10):
        wire.send(b"a" * 20_000)
    assert (wire.statuses, wire.is_open) == ([431], False)


def test_the_rest_of_a_refused_body_is_not_taken_for_ever(desk: Desk) -> None:
    wire = desk.connect("127.0.0.1", post("/denied", 100_000))
    desk.loop.move_on(connections._LINGER_SECONDS - 0.1)
    wire.send(b"x")
    assert (wire.statuses, wire.is_open) == ([401], True)
    desk.loop.move_on(0.2)
    assert not wire.is_open


def test_a_server_that_stops_gives_the_answer_under_way_and_lets_it_be_the_last(desk: Desk) -> None:
    busy, idle = desk.connect("127.0.0.1", SLOW), desk.connect("127.0.0.1", LIVE)
    assert b"connection: close" not in idle.answer()
    desk.drain()
    desk.go_on.set()
    idle.send(LIVE)
    for wire in (busy, idle):
        answer = wire.answer()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        assert not wire.is_open


@pytest.mark.parametrize(
    ("asked", "n_files", "expected"),
    [(1000, 1024, 512), (1000, 2**20, 1000), (100, 1024, 100), (1000, 256, 64), (1000, -1, 1000)],
)
def test_connections_leave_files_for_the_server_itself(asked: int, n_files: int, expected: int) -> None:
    assert most_connections(asked, n_files) == expected
