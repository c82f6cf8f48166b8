"""Connections: how many there are, how long each may take to say what it wants, and how they end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vicinal.service.problem_types import PREFIX

__all__ = ["Connections"]

# For a client to take in some of its answer.
_SEND_SECONDS = 60.0
# For the rest of a body whose request was refused, which clients send before they read the answer.
_LINGER_SECONDS = 5.0
_MOST_HEAD_BYTES = 64 * 2**10


@dataclass
class Connections:
    """Limits on the connections of one server.

    Attributes:
        most: Most connections at once; one beyond takes the place of an idle one, or is answered 503.
        head_seconds: Longest time from the first byte of a request, or from the connection, to the end of its
            headers.
        is_draining: Whether the server stops: every answer is then the last of its connection.
    """

    most: int
    head_seconds: float
    is_draining: bool = False

    def end(self, connection: object) -> None:
        """Let the answer under way be the last one of a connection."""
        if isinstance(connection, _Connection):
            connection.last_answer()

    def protocol(self, **arguments: Any) -> asyncio.Protocol:
        """The protocol of a new connection; uvicorn calls it."""
        return _Connection(self, **arguments)


class _Connection(HttpToolsProtocol):
    """One connection of HTTP/1.1.

    What it adds to uvicorn's: a limit on their number, and on the time and the size of a request's head.
    """

    def __init__(self, limits: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._n_head_bytes = 0
        self._is_reading_head = True
        self._is_message_whole = True

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a next request of which nothing has come."""
        return self.timeout_keep_alive_task is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.most and not self._close_an_idle_one():
            self._refuse(503, "too-many-connections", "the server has as many connections as it takes")
            return
        self._arm(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._resumed()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # What holds the end of a body too is no longer than a read of the socket.
        was_reading_head = self._is_reading_head and self._n_head_bytes > 0
        super().data_received(data)
        if was_reading_head and self._is_reading_head:
            self._n_head_bytes += len(data)
        if self._n_head_bytes > _MOST_HEAD_BYTES and self._is_reading_head:
            self._refuse(431, "headers-too-large", f"the headers are larger than {_MOST_HEAD_BYTES:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_reading_head, self._is_message_whole = True, False
        self._n_head_bytes = 1
        self._arm(self._limits.head_seconds)

    def on_headers_complete(self) -> None:
        self._is_reading_head = False
        self._disarm()
        super().on_headers_complete()
        if self._limits.is_draining:
            self.last_answer()

    def on_message_complete(self) -> None:
        self._is_message_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_message_whole:
            self._arm(_LINGER_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._resumed()
        self._stalled = self.loop.call_later(_SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._resumed()
        super().resume_writing()

    def last_answer(self) -> None:
        """Let the answer under way be the last one."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def _close_an_idle_one(self) -> bool:
        for other in self.connections:
            if isinstance(other, _Connection) and other is not self and other.is_idle:
                other.transport.close()
                return True
        return False

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._is_too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resumed(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _is_too_slow(self) -> None:
        if self._is_reading_head and self._n_head_bytes:
            self._refuse(408, "too-slow", f"the headers took longer than {self._limits.head_seconds:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        """Answer before there is a request, and close."""
        if self.transport.is_closing():
            return
        title = kind.replace("-", " ").capitalize()
        problem = {"type": PREFIX + kind, "title": title, "status": status, "detail": detail}
        body = json.dumps(problem).encode()
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
