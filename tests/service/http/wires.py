"""Connections without sockets: the protocol of the server over transports in memory, in virtual time.

What a client sends is there at once; a client that takes nothing in is one whose wire is stuck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.virtual_time import VirtualLoop
from vicinal.service.errors import BodyTooSlowError
from vicinal.service.http.request_bodies import limited_body
from vicinal.service.http.serving.connections import Connections
from vicinal.service.http.serving.overload import Overload

__all__ = ["BODY_TO_COME", "GET", "SEARCH", "Desk", "Wire", "get", "opened", "post"]

SEARCH = "/v1/galleries/shoes/search"
SECONDS = 30.0
# Bytes that the system takes in for a client before it holds the server up; of a read.
_ROOM = 65_536


def get(path: str, *lines: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def post(path: str, length: int, *lines: str) -> bytes:
    """Head of a request with so long a body."""
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines]
    return "\r\n".join([*head, f"Content-Length: {length}", "", ""]).encode()


GET = get("/v1/galleries")
BODY_TO_COME = post(SEARCH, 9) + b"{"


class Wire:
    """One connection: the server's transport, and what its client does.

    Attributes:
        received: What the client has got and not read yet.
        is_stuck: The client takes nothing in.
        unsent: What waits for such a client.
    """

    def __init__(self, loop: VirtualLoop, address: str) -> None:
        self._loop, self._peer = loop, (address, 1)
        self.received = b""
        self.is_stuck = False
        self.protocol: Any = None
        self._is_closing = self._is_paused = False
        self.unsent = self._unread = b""

    def send(self, content: bytes) -> None:
        """Send something, which the server reads unless it has paused."""
        self._unread += content
        self._loop.call_soon(self._feed)
        self._loop.settle()

    def leave(self) -> None:
        """Close the connection from the client's side."""
        self.abort()
        self._loop.settle()

    def take_in(self) -> None:
        """Take in what has come, and go on doing so."""
        self.is_stuck, self.received, self.unsent = False, self.received + self.unsent, b""
        self._loop.call_soon(self.protocol.resume_writing)
        self._loop.settle()

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed it."""
        return not self._is_closing

    def answer(self) -> bytes:
        """Take the next answer off, head and body.

        Raises:
            ConnectionError: None has come.
        """
        head, end, rest = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        if not end or len(rest) < length:
            raise ConnectionError(f"no answer in {self.received!r}")
        self.received = rest[length:]
        return head + end + rest[:length]

    @property
    def statuses(self) -> list[int]:
        """Take all answers off that have come, and give their statuses."""
        found = []
        while self.received:
            found.append(int(self.answer().split(b" ", 2)[1]))
        return found

    # What the server does

    def get_extra_info(self, name: str) -> object:
        return {"peername": self._peer, "sockname": ("127.0.0.1", 80)}.get(name)

    def write(self, content: bytes) -> None:
        if self._is_closing:
            return
        if not self.is_stuck:
            self.received += content
            return
        was_full, self.unsent = len(self.unsent) > _ROOM, self.unsent + content
        if len(self.unsent) > _ROOM and not was_full:
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._feed)

    def _feed(self) -> None:
        if self._unread and not self._is_paused and not self._is_closing:
            content, self._unread = self._unread[:_ROOM], self._unread[_ROOM:]
            self.protocol.data_received(content)
            self._loop.call_soon(self._feed)


class Desk:
    """A server behind wires: answers `/livez` and others at once, and `/slow` when a test says so.

    Attributes:
        n_begun: Requests that it has begun to answer.
        go_on: Whether those to `/slow` are answered.
    """

    def __init__(self, loop: VirtualLoop, *, most: int, proxies: tuple[str, ...], overload: Any) -> None:
        self.loop = loop
        self.n_begun = 0
        self.go_on = asyncio.Event()
        self.limits = Connections(most, head_seconds=SECONDS, overload=overload, proxies=proxies)
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._answer,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            access_log=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            timeout_keep_alive=75,
        )

    def connect(self, address: str = "127.0.0.1", *sent: bytes) -> Wire:
        """A new connection, on which something was sent already."""
        wire = Wire(self.loop, address)
        wire.protocol = self.limits.protocol(
            config=self._config, server_state=self._state, app_state={}, _loop=self.loop
        )
        self.loop.call_soon(wire.protocol.connection_made, wire)
        for one in sent:
            wire.send(one)
        self.loop.settle()
        return wire

    def status(self, request: bytes, address: str = "127.0.0.1") -> int:
        """Status of the answer to a request on a connection of its own."""
        wire = self.connect(address, request)
        answer = wire.answer()
        wire.leave()
        return int(answer.split(b" ", 2)[1])

    def drain(self) -> None:
        """Stop, as far as connections are told."""
        self.limits.drain(self._state.connections)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.n_begun += 1
        body = limited_body(scope, receive, most=2**22, is_large=True, seconds=SECONDS)
        status, message = 200, {"more_body": scope["method"] == "POST"}
        try:
            if scope["path"] == "/denied":
                status, message = 401, {}
            while message.get("more_body"):
                message = dict(await body())
        except BodyTooSlowError:
            status = 408
        if message.get("type") == "http.disconnect":
            return
        if "slow" in (scope["path"][1:], scope["query_string"].decode()):
            await self.go_on.wait()
        if scope["path"] == "/waiting":
            while (await receive())["type"] != "http.disconnect":
                pass
        content = b"x" * (10 * _ROOM if scope["path"] == "/large" else 5)
        headers = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for half in (content[: len(content) // 2], content[len(content) // 2 :]):
            await send({"type": "http.response.body", "body": half, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _never_full() -> Any:
    return Overload(SimpleNamespace(check=lambda _: None), SimpleNamespace())  # type: ignore[arg-type]


@contextmanager
def opened(
    *, most: int = 1000, proxies: tuple[str, ...] = (), overload: Callable[[], Any] = _never_full
) -> Iterator[Desk]:
    """A server that takes so many connections."""
    loop = VirtualLoop()
    try:
        desk = Desk(loop, most=most, proxies=proxies, overload=overload())
        yield desk
        for one in list(desk._state.connections):
            one.transport.abort()
        desk.go_on.set()
        loop.move_on(SECONDS)
    finally:
        loop.close()
