"""Files on the web: what is read, what is refused, and that no answer costs more than was allowed."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web_server import WebServer, in_turn, redirects, sends, serving, streams
from vicinal.indexer.errors import DownloadError
from vicinal.indexer.sources import web
from vicinal.indexer.sources.web import ANYWHERE, WebAccess, WebClient, is_public
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

LIMITS = DecodeLimits(max_bytes=100_000)
PUBLIC = "93.184.215.14"


@pytest.fixture(scope="module")
def running() -> Iterator[WebServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: WebServer) -> WebServer:
    running.answers.clear()
    running.asked.clear()
    return running


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.time, "sleep", lambda _: None)


def read(url: str, access: WebAccess = ANYWHERE) -> bytes:
    with WebClient(access) as client:
        return client.read(url, LIMITS)


def refusal(url: str, access: WebAccess = ANYWHERE) -> str:
    with pytest.raises(DownloadError) as refused:
        read(url, access)
    return str(refused.value)


@pytest.fixture
def as_public(monkeypatch: pytest.MonkeyPatch, server: WebServer) -> WebAccess:
    """Access of strangers, for whom 127.0.0.1 is a public address here; 127.0.0.2 is not."""
    monkeypatch.setattr(web, "_PORTS", {server.port})
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    return WebAccess()


def test_a_file_is_read_whole(server: WebServer) -> None:
    server.answers["/a%20b.jpg?size=big"] = sends(b"x" * 100_000)
    assert read(server.url("/a b.jpg?size=big")) == b"x" * 100_000


def test_a_file_without_a_length_is_read_to_its_end(server: WebServer) -> None:
    server.answers["/1.jpg"] = streams(b"abc", 1000)
    assert read(server.url("/1.jpg")) == b"abc" * 1000


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server: WebServer, status: int) -> None:
    server.answers["/old.jpg"] = redirects("/new.jpg", status)
    server.answers["/new.jpg"] = sends(b"picture")
    assert read(server.url("/old.jpg")) == b"picture"


def test_redirects_in_a_circle_end(server: WebServer) -> None:
    server.answers["/1.jpg"] = redirects("/1.jpg")
    assert "redirected more than 5 times" in refusal(server.url("/1.jpg"))
    assert len(server.asked) == 6


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_file_that_is_not_there_is_asked_for_once(server: WebServer, status: int) -> None:
    server.answers["/1.jpg"] = sends(b"sorry", status)
    assert f"status {status}" in refusal(server.url("/1.jpg"))
    assert len(server.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_fails_for_a_moment_is_asked_again(server: WebServer, status: int) -> None:
    server.answers["/1.jpg"] = in_turn(sends(b"", status), sends(b"", status), sends(b"picture"))
    assert read(server.url("/1.jpg")) == b"picture"


def test_a_server_that_fails_for_good_is_asked_three_times(server: WebServer) -> None:
    server.answers["/1.jpg"] = sends(b"", 503)
    assert "status 503" in refusal(server.url("/1.jpg"))
    assert len(server.asked) == 3


def test_nobody_at_the_other_end_is_one_sentence() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/1.jpg"
        assert refusal(url).startswith(f"'{url}' cannot be read: ConnectError")


def test_a_name_that_is_none_is_one_sentence() -> None:
    assert "cannot be read" in refusal("http://nobody.invalid/1.jpg")


def test_an_empty_file_is_no_image(server: WebServer) -> None:
    server.answers["/1.jpg"] = sends(b"")
    with pytest.raises(NotAnImageError):
        read(server.url("/1.jpg"))


@pytest.mark.parametrize(
    "address",
    ["ftp://example.com/1.jpg", "file:///etc/passwd", "https:///1.jpg", "http://[::1", "gopher://a/"],
)
def test_what_is_no_address_of_the_web_is_refused(address: str) -> None:
    assert "is no address" in refusal(address)


def test_a_redirect_to_a_file_of_the_machine_is_refused(server: WebServer) -> None:
    server.answers["/1.jpg"] = redirects("file:///etc/passwd")
    assert "is no address of http or https" in refusal(server.url("/1.jpg"))


# Answers that would cost too much


@pytest.mark.parametrize("said", [10 * 2**30, None])
def test_of_a_huge_file_no_more_is_kept_than_allowed(server: WebServer, said: int | None) -> None:
    """A server that claims 10 GB, and one that sends without an end."""
    sent: list[None] = []
    server.answers["/1.jpg"] = streams(b"x" * 2**16, 100_000, said, lambda: sent.append(None))
    tracemalloc.start()
    with pytest.raises(ImageTooLargeError, match="100,000"):
        read(server.url("/1.jpg"))
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
    assert len(sent) < 10_000


@pytest.mark.slow
def test_a_server_that_sends_a_drop_at_a_time_is_given_up(server: WebServer) -> None:
    enough = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not enough.wait(0.05):
            request.wfile.write(b"x")

    server.answers["/1.jpg"] = drip
    started = time.monotonic()
    assert "ReadTimeout" in refusal(server.url("/1.jpg"), WebAccess(public_only=False, seconds=0.5))
    assert time.monotonic() - started < 60
    enough.set()


DRIPS = {
    "status line": (b"HTTP/1.1 ", b"2"),
    "head": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"),
    "many heads": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
    "early answers": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "answers to go on": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "lines before": (b"", b"\r\n"),
    "chunk extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    "small chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"X-A: b\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n", b"a"),
    "failures": (b"HTTP/1.1 503 Later\r\nX-Long: ", b"a"),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /", b"a"),
}


@contextmanager
def dripping(begin: bytes, drop: bytes) -> Iterator[str]:
    """Address of a server that begins to answer, and then goes on by a drop at a time, for ever."""
    done = threading.Event()

    def drip(there: socket.socket) -> None:
        with there, suppress(OSError):
            there.recv(65_536)
            there.sendall(begin)
            while not done.wait(0.05):
                there.sendall(drop)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/1.jpg"
        done.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.parametrize(("begin", "drop"), DRIPS.values(), ids=DRIPS.keys())
@pytest.mark.parametrize("is_public", [True, False], ids=["strangers", "owner"])
def test_the_time_for_a_file_holds_whatever_trickles(
    monkeypatch: pytest.MonkeyPatch, begin: bytes, drop: bytes, is_public: bool
) -> None:
    monkeypatch.setattr(web, "is_public", lambda _: True)
    monkeypatch.setattr(web.WebClient, "_check", lambda *_: None)
    started = time.monotonic()
    with dripping(begin, drop) as url:
        assert "cannot be read" in refusal(url, WebAccess(public_only=is_public, seconds=0.5))
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_the_time_for_a_file_holds_while_its_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(300) and [])
    started = time.monotonic()
    assert "takes too long" in refusal("http://slow.example/1.jpg", WebAccess(seconds=0.5))
    assert time.monotonic() - started < 60
    done.set()


@pytest.mark.slow
def test_the_time_for_a_file_holds_for_all_addresses_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def connect(_: object, host: str, port: int, timeout: float, *__: object) -> httpcore.NetworkStream:
        waits.append(timeout)
        done.wait(timeout)
        raise httpcore.ConnectTimeout

    done = threading.Event()
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    resolves(monkeypatch, [f"8.8.8.{n}" for n in range(200)])
    started = time.monotonic()
    assert "cannot be read" in refusal("http://many.example/1.jpg", WebAccess(seconds=0.5))
    assert time.monotonic() - started < 60
    assert max(waits) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        f"http://{'a' * 64}.example/1.jpg",
        f"http://{'.'.join(['a' * 60] * 10)}/1.jpg",
        "http://a..example/1.jpg",
        "http://.example/1.jpg",
        "http://xn--a.example/1.jpg",
        "http://\u0130\u0307.example/1.jpg",
        "http://a:99999/1.jpg",
        "http://a:b/1.jpg",
        "http://a b/1.jpg",
        "http://[::1/1.jpg",
        "http://[1.2.3.4]/1.jpg",
        "http://%00/1.jpg",
        "http://256.256.256.256/1.jpg",
        "http:///1.jpg",
        "http://",
        "http://user:pass@/1.jpg",
        f"http://a/{'a' * 70_000}",
    ],
)
@pytest.mark.parametrize("access", [ANYWHERE, WebAccess()], ids=["owner", "strangers"])
def test_a_name_that_cannot_be_is_one_sentence(address: str, access: WebAccess) -> None:
    assert refusal(address, access)


@pytest.mark.slow
def test_a_server_that_says_nothing_is_given_up(server: WebServer) -> None:
    enough = threading.Event()
    server.answers["/1.jpg"] = lambda _: enough.wait(300) and None
    started = time.monotonic()
    assert "ReadTimeout" in refusal(server.url("/1.jpg"), WebAccess(public_only=False, seconds=0.5))
    assert time.monotonic() - started < 60
    enough.set()


# Addresses that strangers name


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", PUBLIC, "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_that_are_public(address: str) -> None:
    """Negative control."""
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_what_it_is_mapped_to(address: ipaddress.IPv4Address) -> None:
    assert is_public(f"::ffff:{address}") == is_public(str(address))


@pytest.mark.slow
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0", "169.254.169.254"],
)
def test_strangers_reach_nothing_of_this_network(
    server: WebServer, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "_PORTS", {server.port})
    server.answers["/1.jpg"] = sends(b"secret")
    line = refusal(server.url("/1.jpg", host), WebAccess())
    assert "not on the public internet" in line or "cannot be read" in line
    assert server.asked == []


def test_the_owner_does(server: WebServer) -> None:
    """Negative control: it is there to be read."""
    server.answers["/1.jpg"] = sends(b"secret")
    assert read(server.url("/1.jpg", "localhost")) == b"secret"


def test_strangers_read_what_is_public(server: WebServer, as_public: WebAccess) -> None:
    server.answers["/1.jpg"] = sends(b"picture")
    assert read(server.url("/1.jpg"), as_public) == b"picture"


def test_every_redirect_is_checked_anew(server: WebServer, as_public: WebAccess) -> None:
    server.answers["/1.jpg"] = redirects(server.url("/secret.jpg", "127.0.0.2"))
    server.answers["/secret.jpg"] = sends(b"secret")
    assert "'127.0.0.2' is not on the public internet" in refusal(server.url("/1.jpg"), as_public)
    assert server.asked == ["/1.jpg"]
    assert read(server.url("/1.jpg")) == b"secret"


def test_strangers_choose_no_ports(server: WebServer) -> None:
    line = refusal(server.url("/1.jpg", PUBLIC), WebAccess())
    assert f"port {server.port} of" in line


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that connections are made to; none of them answers."""
    made: list[str] = []

    def connect(_backend: object, host: str, *_: object, **__: object) -> httpcore.NetworkStream:
        made.append(host)
        raise httpcore.ConnectError("nobody answers")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    return made


def resolves(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """A name server whose answers change from one question to the next; the names that were asked for."""
    asked, left = [], list(answers)

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_is_asked_for_once_and_the_address_that_was_checked_is_used(
    monkeypatch: pytest.MonkeyPatch, connected: list[str]
) -> None:
    """Otherwise its owner answers the check with a public address and the connection with a private one."""
    asked = resolves(monkeypatch, [PUBLIC], ["127.0.0.1"])
    refusal("http://rebinds.example/1.jpg", WebAccess(tries=1))
    assert (asked, connected) == (["rebinds.example"], [PUBLIC])


def test_a_name_that_is_private_at_the_next_try_is_refused_then(
    monkeypatch: pytest.MonkeyPatch, connected: list[str]
) -> None:
    resolves(monkeypatch, [PUBLIC], ["127.0.0.1"])
    line = refusal("http://rebinds.example/1.jpg", WebAccess(tries=3))
    assert "'rebinds.example' is not on the public internet" in line
    assert connected == [PUBLIC]


def test_a_name_with_one_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, connected: list[str]
) -> None:
    resolves(monkeypatch, [PUBLIC, "10.0.0.1"])
    assert "not on the public internet" in refusal("https://both.example/1.jpg", WebAccess())
    assert connected == []


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch, connected: list[str]) -> None:
    resolves(monkeypatch, [PUBLIC, "8.8.8.8"])
    refusal("http://twice.example/1.jpg", WebAccess(tries=1))
    assert connected == [PUBLIC, "8.8.8.8"]
