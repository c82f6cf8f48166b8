"""Connections: slow ones, too many of them and large heads cost others nothing."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from tests.logs import said_by
from tests.service.types import MakeSettings
from tests.waiting import Clock, wait_until
from vicinal.service.http.app import create_app
from vicinal.service.http.serving import connections, server
from vicinal.service.http.serving.server import serving
from vicinal.service.http.state import state_of

SEARCH = "/v1/galleries/shoes/search"
SECONDS = 1.0
ITEM = {"item_id": "plain/view 0.png"}
MOST = 12
BODY_TO_COME = f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{{".encode()


@pytest.fixture(scope="module")
def impatient(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    """A server that gives a request little time."""
    with serving(make_settings(calibrated_dir, request_seconds=SECONDS)) as url:
        yield url


@pytest.fixture(scope="module")
def narrow(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    """A server that takes three connections."""
    with serving(make_settings(calibrated_dir, max_connections=3)) as url:
        yield url


@pytest.fixture
def crowded(waiting: FastAPI) -> Iterator[str]:
    """A server that takes a few connections."""
    with serving(waiting) as url:
        yield url


@pytest.fixture
def waiting(calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """Its application, which answers nobody at `/waiting/`, and counts who comes there."""
    # Who is in the reserve asks when all others have been connected.
    monkeypatch.setattr(connections, "_RESERVE_SECONDS", 60.0)
    app = create_app(make_settings(calibrated_dir, max_connections=MOST))
    app.state.n_begun = 0

    async def for_ever(_: object, receive: Callable[[], Awaitable[Message]], __: object) -> None:
        app.state.n_begun += 1
        while (await receive())["type"] != "http.disconnect":
            pass

    app.mount("/waiting", for_ever)
    return app


@pytest.fixture
def working(waiting: FastAPI, crowded: str) -> Iterator[Callable[[str], None]]:
    """Begins a request from an address, which the server is at work on for ever."""
    with ExitStack() as held:

        def begin(address: str) -> None:
            there, n_begun = held.enter_context(connected(crowded, address)), waiting.state.n_begun
            there.sendall(b"GET /waiting/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wait_until(lambda: waiting.state.n_begun > n_begun, every=0.001)

        yield begin


@contextmanager
def connected(url: str, own: str = "127.0.0.1") -> Iterator[socket.socket]:
    place = (urlsplit(url).hostname, urlsplit(url).port)
    with socket.create_connection(place, timeout=60, source_address=(own, 0)) as there:
        yield there


def rest_of(there: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    received = b""
    try:
        while part := there.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def answer_of(there: socket.socket) -> bytes:
    """One answer, head and body; a body may come on its own.

    Raises:
        ConnectionError: The connection was closed before.
    """
    received = b""
    while not is_whole(received):
        part = there.recv(65_536)
        if not part:
            raise ConnectionError(f"closed after {received!r}")
        received += part
    return received


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    return bool(end) and len(body) >= int(length)


def is_read_by(url: str) -> bool:
    """Whether a server, whose event loop takes what comes in order, has read all that was sent before."""
    return httpx.get(f"{url}/livez").status_code == 200


def drip(there: socket.socket, data: bytes, every: float) -> threading.Thread:
    """Send a byte at a time, from a thread, until the server has had enough."""

    def run() -> None:
        try:
            for one in data:
                there.sendall(bytes([one]))
                time.sleep(every)
        except OSError:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_headers_that_come_too_slowly_are_408(impatient: str) -> None:
    with connected(impatient) as there:
        drip(there, b"GET /livez HTTP/1.1\r\nHost: " + b"a" * 1000, every=0.02)
        received = rest_of(there)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"urn:vicinal:problem:too-slow" in received


@pytest.mark.slow
def test_a_connection_on_which_nothing_comes_is_closed(impatient: str) -> None:
    with connected(impatient) as there:
        assert rest_of(there) == b""


@pytest.mark.slow
def test_the_second_request_of_a_connection_has_as_little_time(impatient: str) -> None:
    with connected(impatient) as there:
        there.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer_of(there).startswith(b"HTTP/1.1 200 ")
        there.sendall(b"GET /li")
        assert rest_of(there).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{" * 9000),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + b"a" * 9000,
        ),
    ],
    ids=["json", "form"],
)
def test_a_body_that_comes_too_slowly_is_408(impatient: str, kind: str, body: bytes) -> None:
    head = (
        f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 9000\r\n\r\n"
    )
    with connected(impatient) as there:
        there.sendall(head.encode())
        drip(there, body, every=0.02)
        received = answer_of(there)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"too-slow" in received


@pytest.mark.slow
def test_a_body_that_never_begins_is_408_without_a_length_too(impatient: str) -> None:
    with connected(impatient) as there:
        there.sendall(
            f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        assert answer_of(there).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_a_large_body_gets_the_time_that_it_needs(impatient: str) -> None:
    """Negative control: bytes that come as fast as is asked for are taken beyond the limit."""
    # A minute's worth of bytes.
    body = b'{"item_id": "plain/view 0.png"' + b" " * 1_000_000 + b"}"
    head = (
        f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with connected(impatient) as there:
        there.sendall(head.encode())
        there.sendall(body[:-1])
        time.sleep(2 * SECONDS)
        there.sendall(body[-1:])
        assert answer_of(there).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_who_leaves_before_the_body_is_whole_is_no_error_of_the_server(
    calibrated_dir: Path, make_settings: MakeSettings, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    head = f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 9000"
    counted = 'vicinal_http_request_seconds_count{method="POST",route="/v1/galleries/{gallery}/search"'
    with serving(make_settings(calibrated_dir)) as url:
        with connected(url) as there:
            there.sendall(f"{head}\r\n\r\n--x".encode())
            time.sleep(0.2)
        wait_until(lambda: counted in httpx.get(f"{url}/metrics").text)
        metrics = httpx.get(f"{url}/metrics").text
    assert f'{counted},status="none"}} 1.0' in metrics
    assert "internal-error" not in metrics
    assert said_by(caplog, "vicinal.service.http", logging.ERROR) == []


def test_slow_bodies_leave_searches_alone(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    head = (
        f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9000"
    )
    with serving(make_settings(calibrated_dir)) as url, ExitStack() as held:
        for _ in range(100):
            held.enter_context(connected(url)).sendall(f"{head}\r\n\r\n{{".encode())
        answers = [httpx.post(url + SEARCH, json=ITEM) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]


@pytest.mark.slow
def test_one_connection_too_many_is_503_and_told_why(narrow: str) -> None:
    with ExitStack() as held:
        for _ in range(3):
            # Each is in the middle of a request.
            held.enter_context(connected(narrow)).sendall(BODY_TO_COME)
        assert is_read_by(narrow)
        with connected(narrow) as there:
            there.sendall(b"GET /v1/galleries HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            received = rest_of(there)
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"too-many-connections" in received
    assert b"retry-after: 1" in received
    wait_until(lambda: httpx.get(f"{narrow}/livez").status_code == 200)


ATTACKS = {
    "nothing": b"",
    "half of a head": b"GET /livez HT",
    "a head that goes on": b"GET /livez HTTP/1.1\r\nX-A: ",
    "a body to come": BODY_TO_COME,
    "one answer and no more": b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "half of a second head": b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /li",
}


@pytest.mark.slow
@pytest.mark.parametrize("sent", ATTACKS.values(), ids=ATTACKS.keys())
def test_one_address_keeps_nobody_else_out(crowded: str, sent: bytes) -> None:
    """Though it opens far more connections than there may be, and again whenever one is closed."""
    with ExitStack() as held:
        for _ in range(3 * MOST):
            held.enter_context(connected(crowded, "127.0.0.2")).sendall(sent)
        for _ in range(5):
            with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.3")) as other:
                assert other.get(f"{crowded}/livez").status_code == 200
                assert other.post(crowded + SEARCH, json=ITEM).status_code == 200
            held.enter_context(connected(crowded, "127.0.0.2")).sendall(sent)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", BODY_TO_COME], ids=["nothing", "head", "body"])
def test_many_addresses_keep_nobody_out_who_says_what_it_wants(crowded: str, sent: bytes) -> None:
    with ExitStack() as held:
        # Half as many addresses as connections: one has two of them at any time, and gives one up.
        for number in range(2 * MOST):
            held.enter_context(connected(crowded, f"127.0.1.{number // 4}")).sendall(sent)
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.3")) as other:
            assert other.post(crowded + SEARCH, json=ITEM).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_are_answered_where_all_connections_are_at_work(
    crowded: str, working: Callable[[str], None], path: str
) -> None:
    for number in range(MOST):
        working(f"127.0.2.{number}")
    with ExitStack() as held:
        # The reserve is not to be had by those who say nothing either.
        for number in range(40):
            held.enter_context(connected(crowded, "127.0.3.1" if number % 2 else "127.0.3.2")).sendall(b"GET")
        answer = httpx.get(crowded + path)
        other = httpx.get(f"{crowded}/v1/galleries")
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert (other.status_code, other.json()["type"].rpartition(":")[2]) == (503, "too-many-connections")


@pytest.mark.slow
def test_an_address_alone_has_all_connections(crowded: str, working: Callable[[str], None]) -> None:
    for _ in range(MOST - 1):
        working("127.0.0.2")
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as own:
        assert own.post(crowded + SEARCH, json=ITEM).status_code == 200
        working("127.0.0.2")
        # Negative control: more than all it gets not, but for the probes.
        statuses = [
            own.get(f"{crowded}{path}").status_code for path in ("/v1/galleries", "/livez", "/readyz")
        ]
    assert statuses == [503, 200, 200]


@pytest.mark.slow
def test_hundreds_of_connections_of_one_address_lose_no_request(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    """Nine of ten that there may be, which come at once and stay, beside probes from the same address."""
    request = b"GET /v1/galleries HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving(make_settings(calibrated_dir, max_connections=100)) as url, ExitStack() as held:
        many = [held.enter_context(connected(url)) for _ in range(90)]
        for _ in range(3):
            for there in many:
                there.sendall(request)
            assert httpx.get(f"{url}/livez").status_code == 200
            assert {answer_of(there)[:12] for there in many} == {b"HTTP/1.1 200"}


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", b"GET"], ids=["nothing", "head", "less"])
@pytest.mark.parametrize("is_at_work", [False, True], ids=["half-open", "at work"])
def test_a_flood_of_an_address_pushes_out_no_probe_of_the_same(
    crowded: str, working: Callable[[str], None], sent: bytes, is_at_work: bool
) -> None:
    with ExitStack() as held:
        for _ in range(MOST):
            if is_at_work:
                working("127.0.0.1")
            else:
                held.enter_context(connected(crowded)).sendall(sent)
        probe = held.enter_context(connected(crowded))
        for _ in range(10 * MOST):
            held.enter_context(connected(crowded)).sendall(sent)
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert rest_of(probe).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_who_wants_in_cuts_off_nobody_at_work_and_comes_next(
    waiting: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it was turned away, the address that has all connections gets no more than its share."""
    go_on = threading.Event()

    def answered() -> dict[str, bool]:
        return {"answered": go_on.wait(30)}

    monkeypatch.setattr(connections, "_WANTED_SECONDS", 60.0)
    waiting.add_api_route("/slow", answered)
    slow = b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving(waiting) as url, ExitStack() as held:
        many = [held.enter_context(connected(url, "127.0.0.2")) for _ in range(MOST)]
        for there in many:
            there.sendall(slow)
        assert is_read_by(url)
        assert httpx.post(url + SEARCH, json=ITEM).status_code == 503
        go_on.set()
        assert {answer_of(there)[:12] for there in many} == {b"HTTP/1.1 200"}
        for there in many:
            there.sendall(slow)
        answers = [answer_of(there) for there in many]
        assert {one[:12] for one in answers} == {b"HTTP/1.1 200"}
        closed = [there for there, one in zip(many, answers, strict=True) if b"connection: close" in one]
        assert len(closed) >= MOST // 4
        # A connection counts until the server has closed it.
        assert [rest_of(there) for there in closed] == [b""] * len(closed)
        assert httpx.post(url + SEARCH, json=ITEM).status_code == 200
        # Negative control: what it opens within its share stays open.
        within = held.enter_context(connected(url, "127.0.0.2"))
        within.sendall(slow)
        assert b"connection: close" not in answer_of(within)


@pytest.mark.slow
def test_who_is_above_its_share_gives_way_before_all_others(crowded: str) -> None:
    get = b"GET /v1/galleries HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with ExitStack() as held:
        # Of two that say nothing, the older one would have to go.
        small = held.enter_context(connected(crowded, "127.0.0.4"))
        for _ in range(MOST - 1):
            large = held.enter_context(connected(crowded, "127.0.0.2"))
            large.sendall(get)
            answer_of(large)
        assert httpx.get(f"{crowded}/v1/galleries").status_code == 200
        small.sendall(get)
        assert answer_of(small).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_who_takes_nothing_in_of_its_answers_keeps_nobody_out(
    waiting: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_STALLED_SECONDS", 0.2)

    async def large(_: object, __: object, send: Callable[..., Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})

    waiting.mount("/large", large)
    with serving(waiting) as url, ExitStack() as held:
        for _ in range(MOST):
            there = held.enter_context(connected(url, "127.0.0.2"))
            there.sendall(b"GET /large/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(lambda: httpx.post(url + SEARCH, json=ITEM).status_code == 200, every=0.1)


@pytest.mark.slow
def test_behind_a_proxy_the_share_is_that_of_whom_it_forwards_for(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_WANTED_SECONDS", 60.0)
    settings = make_settings(calibrated_dir, max_connections=MOST, trusted_proxies=["127.0.0.1"])
    # What stands before the last address, anybody can have written.
    head = "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 9.9.9.9, {}\r\nContent-Length: 9\r\n\r\n"
    large = head.format(SEARCH, "203.0.113.5").encode()

    def status_of_other() -> int:
        return httpx.get(f"{url}/v1/galleries", headers={"X-Forwarded-For": "203.0.113.9"}).status_code

    with serving(settings) as url, ExitStack() as held:
        for _ in range(MOST):
            held.enter_context(connected(url)).sendall(large)
        assert is_read_by(url)
        # Alone it had all; others come, and from then on it gets no more than its share.
        assert [status_of_other() for _ in range(3)] == [200, 200, 200]
        with connected(url) as more:
            more.sendall(large)
            assert rest_of(more).startswith(b"HTTP/1.1 503 ")
        assert status_of_other() == 200


def test_an_address_of_ipv6_counts_with_its_network() -> None:
    of = connections._network_of
    assert of("2001:db8::1") == of("2001:db8::ffff:1")
    assert of("2001:db8::1") != of("2001:db8:0:1::1")
    assert of("::ffff:192.0.2.1") == of("192.0.2.1") != of("192.0.2.2")
    assert of("fe80::1%eth0") == of("fe80::1")
    assert of("no address") == "no address"


def test_an_idle_connection_makes_room(narrow: str) -> None:
    with ExitStack() as held:
        idle = [held.enter_context(connected(narrow)) for _ in range(3)]
        for there in idle:
            there.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"alive" in answer_of(there)
        assert httpx.get(f"{narrow}/livez").status_code == 200
        assert httpx.get(f"{narrow}/v1/galleries").status_code == 200
        # Negative control: the others still answer.
        still = 0
        for there in idle:
            try:
                there.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                still += b"alive" in answer_of(there)
            except OSError:
                continue
        assert still == 2


def test_large_headers_are_431(narrow: str) -> None:
    with connected(narrow) as there:
        drip_in_parts(there, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", b"a" * 20_000, 10)
        received = rest_of(there)
    assert received.startswith(b"HTTP/1.1 431 ")


def drip_in_parts(there: socket.socket, head: bytes, part: bytes, n: int) -> None:
    try:
        there.sendall(head)
        for _ in range(n):
            there.sendall(part)
            time.sleep(0.01)
    except OSError:
        return


@pytest.mark.slow
def test_the_rest_of_a_refused_body_is_not_taken_for_ever(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_SECONDS", 0.5)
    settings = make_settings(calibrated_dir, api_keys={"a-good-key": ("search",)})
    with serving(settings) as url, connected(url) as there:
        there.sendall(f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n".encode())
        drip(there, b"x" * 100_000, every=0.01)
        started = time.monotonic()
        received = rest_of(there)
        spent = time.monotonic() - started
    assert received.startswith(b"HTTP/1.1 401 ")
    # All of the body would have taken a thousand seconds.
    assert spent < 100


@pytest.mark.slow
def test_a_client_that_takes_nothing_in_is_cut_off(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SEND_SECONDS", 0.5)
    app = create_app(make_settings(calibrated_dir))
    large, over = b"x" * 50_000_000, threading.Event()

    async def endless(scope: object, receive: object, send: Callable[..., object]) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[misc]
        await send({"type": "http.response.body", "body": large, "more_body": True})  # type: ignore[misc]
        await send({"type": "http.response.body", "body": large, "more_body": False})  # type: ignore[misc]
        over.set()

    app.mount("/large", endless)
    with serving(app) as url, connected(url) as there:
        there.sendall(b"GET /large/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        # It waits for the client, or until that is cut off.
        wait_until(over.is_set)
        assert 0 < len(rest_of(there)) < 2 * len(large)


@pytest.mark.slow
def test_a_server_that_stops_answers_what_was_on_its_way(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    app = create_app(make_settings(calibrated_dir))
    with ExitStack() as held:
        with serving(app) as url:
            idle = [held.enter_context(connected(url)) for _ in range(2)]
            for there in idle:
                there.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b"connection: close" not in answer_of(there)
            received: list[bytes] = []

            def ask_when_it_stops() -> None:
                assert state_of(app).stopping.wait(60)
                time.sleep(0.2)
                idle[0].sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                received.append(rest_of(idle[0]))
                # It need not take more requests.
                clock.now += server._DRAIN_SECONDS

            stopping = threading.Thread(target=ask_when_it_stops)
            stopping.start()
        stopping.join()
        assert b"connection: close" in received[0]
        # The other one sent nothing, and is closed.
        assert rest_of(idle[1]) == b""
