"""Connections: how many there are and whose, how long each may take, and how they end. Where there are too
many, a request takes the place of a slow or idle one of the address that has most.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import json
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from vicinal.service.http.serving.overload import Overload, Route
from vicinal.service.problem_types import PREFIX

logger = logging.getLogger(__name__)
# For a client to take in some of its answer.
_SEND_SECONDS = 60.0
# Of it, for one whose address has more than its share, where another address wants its place.
_STALLED_SECONDS = 2.0
# For the rest of a body whose request was refused, which clients send before they read the answer.
_LINGER_SECONDS = 5.0
_MOST_HEAD_BYTES = 64 * 2**10
# Searches that a turn of the event loop begins to read: some milliseconds.
_MOST_A_TURN = 8
# Of all connections, those of one address while others want some; how long they do after one found none.
_SHARE, _WANTED_SECONDS = 0.75, 5.0
# Beside all connections, for who asks whether the server is well, and the time to do so. More than are
# accepted before one of them is read, so that a flood pushes none out whose request is there.
_RESERVE, _RESERVE_SECONDS = 256, 2.0
_PROBES = frozenset({b"/livez", b"/readyz", b"/metrics"})
_LONGEST_ADDRESS = 64
_FORWARDED = b"x-forwarded-for"
# What a connection is at, in the order in which they give way to others.
_HALF_OPEN, _IDLE, _SENDS = range(3)


def most_connections(asked: int, n_files: int) -> int:
    """Connections that a process which may open so many files can have beside those that it needs itself."""
    most = min(asked, max(n_files // 4, n_files - 2 * _RESERVE))
    if n_files < 0 or most == asked:
        return asked
    logger.warning("max_connections is %d: of files a process may open %d (`ulimit -n`)", most, n_files)
    return most


@dataclass
class Connections:
    """Limits on the connections of one server."""

    most: int  # One beyond takes the place of an idle one, or is answered 503
    # Longest time from the first byte of a request, or from the connection, to the end of its headers
    head_seconds: float
    overload: Overload  # Turns searches away that would wait too long
    proxies: tuple[str, ...] = ()  # Their requests belong to the address that they are forwarded for
    is_draining: bool = False  # The server stops: every answer is then the last of its connection
    _to_begin: deque[Callable[[], None]] = field(default_factory=deque)
    n_of: Counter[str] = field(default_factory=Counter)
    _trusted: _TrustedHosts = field(init=False)
    ages: Iterator[int] = field(default_factory=itertools.count)
    wanted_until: float = -math.inf

    def __post_init__(self) -> None:
        self._trusted = _TrustedHosts([*self.proxies])

    @property
    def share(self) -> int:
        """Most connections of one address while others want some."""
        return math.ceil(_SHARE * self.most)

    def is_proxy(self, host: str) -> bool:
        """Tell whether what an address forwards belongs to somebody else."""
        return bool(self.proxies) and host in self._trusted

    def forwarded_for(self, values: Iterable[bytes]) -> str:
        """The address that a proxy sends a request for; empty where it does not say."""
        return self._trusted.get_trusted_client_address(b", ".join(values).decode("latin-1"))[0]

    def drain(self, connections: Iterable[object]) -> None:
        """Let the answer under way, or the next one, be the last of each connection."""
        self.is_draining = True
        for connection in connections:
            if isinstance(connection, _Connection):
                connection.last_answer()

    def begin_soon(self, begin: Callable[[], None]) -> None:
        """Begin to answer a search, after a turn of the event loop for every few that came before."""
        if not self._to_begin:
            asyncio.get_running_loop().call_soon(self._begin_some)
        self._to_begin.append(begin)

    def _begin_some(self) -> None:
        for _ in range(min(_MOST_A_TURN, len(self._to_begin))):
            self._to_begin.popleft()()
        if self._to_begin:
            asyncio.get_running_loop().call_soon(self._begin_some)

    def protocol(self, **arguments: Any) -> asyncio.Protocol:
        """The protocol of a new connection; uvicorn calls it."""
        return _Connection(self, **arguments)


class _Connection(HttpToolsProtocol):
    """Connection of HTTP/1.1 that limits heads, and refuses searches that would wait too long."""

    def __init__(self, limits: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._age = next(limits.ages)
        self._owner = ""
        self._is_of_proxy = self._is_of_all = self._is_in_reserve = False
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._n_begun = self._n_head_bytes = 0
        self._is_reading_head = True
        self._is_message_whole = True
        # Answered as soon as its head was there; of its body nothing is kept.
        self._is_turned_away = False
        self._route: Route | None = None
        self._n_present = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self._is_of_proxy = self._limits.is_proxy(host)
        self._belongs_to(host)
        if not self._is_above_share and self._n_taken() < self._limits.most:
            self._arm(self._limits.head_seconds)
        elif self._fits_reserve():
            self._is_in_reserve = True
            self._arm(min(_RESERVE_SECONDS, self._limits.head_seconds))
        else:
            self._refuse_for_many()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._resumed()
        self._note_present(-self._n_present)
        self._belongs_to("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # What holds the end of a body too is no longer than a read of the socket.
        begun = self._n_begun if self._is_reading_head and self._n_head_bytes > 0 else None
        super().data_received(data)
        # Otherwise all of it may be other requests, and the beginning of one.
        if self._is_reading_head and self._n_begun == begun:
            self._n_head_bytes += len(data)
        if not self._is_reading_head:
            return
        if self._timer is None and self._n_head_bytes > 0:
            self._arm(self._limits.head_seconds)
        if self._n_head_bytes > _MOST_HEAD_BYTES:
            self._refuse(431, "headers-too-large", f"the headers are larger than {_MOST_HEAD_BYTES:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_reading_head, self._is_message_whole, self._is_turned_away = True, False, False
        self._n_begun += 1
        self._n_head_bytes = 1
        # The time of its head is counted once it is known that the head is longer than what has come.
        self._disarm()

    def on_headers_complete(self) -> None:
        self._is_reading_head = False
        self._disarm()
        if self._is_one_too_many():
            self._is_turned_away = True
            self._refuse_for_many()
            return
        self._route = self._limits.overload.route_of(self.parser.get_method(), self.url)
        if self._is_refused_early():
            return
        super().on_headers_complete()
        if self._limits.is_draining or self._is_in_reserve or self._is_above_share:
            self.last_answer()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        start = partial(super()._start_asgi_task, cycle, app)
        if self._route is None:
            start()
        else:
            self._limits.begin_soon(start)

    def on_body(self, body: bytes) -> None:
        if not self._is_turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_message_whole = True
        is_answered = self.cycle is not None and self.cycle.response_complete
        if self._is_turned_away or is_answered:
            self._wait_for_next()
            return
        super().on_message_complete()
        self._note_present(self._route is not None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_present(-(self._n_present > 0))
        if self._is_of_proxy and self.client:
            self._belongs_to(self.client[0])
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

    def _is_refused_early(self) -> bool:
        """Answer a search that would wait too long, where nothing is to be said but that."""
        is_plain = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        # The application waits for a client that does not take in its answers.
        is_next = (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused
        if self._route is None or self._limits.is_draining or self.expect_100_continue:
            return False
        if not is_plain or not is_next:
            return False
        answer = self._limits.overload.refusal(self._route, self.headers, self.client)
        if answer is None:
            return False
        self._is_turned_away = True
        self.transport.write(answer)
        self.on_response_complete()
        return True

    def _note_present(self, change: int) -> None:
        self._n_present += change
        self._limits.overload.n_present += change

    def _wait_for_next(self) -> None:
        """Wait for the next request, once the rest of one came whose answer had left."""
        self._disarm()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    @property
    def _rank(self) -> int | None:
        """Rank in giving way to another one; None while it is at work."""
        if self.timeout_keep_alive_task is not None:
            return _IDLE
        if self._is_reading_head and (self.cycle is None or self.cycle.response_complete):
            return _HALF_OPEN
        return _SENDS if self._is_stuck or not self._is_message_whole else None

    @property
    def _is_stuck(self) -> bool:
        """Test for a client above its share that takes nothing in of its answer."""
        if self._stalled is None or self._limits.n_of[self._owner] <= self._limits.share:
            return False
        return self._stalled.when() - self.loop.time() < _SEND_SECONDS - _STALLED_SECONDS

    def _belongs_to(self, host: str) -> None:
        """Count it among the connections of an address; of nobody's where that is empty."""
        if self._owner:
            self._limits.n_of[self._owner] -= 1
            if not self._limits.n_of[self._owner]:
                del self._limits.n_of[self._owner]
        self._is_of_all = self._is_of_proxy and self.client is not None and host == self.client[0]
        self._owner = _network_of(host[:_LONGEST_ADDRESS])
        if self._owner:
            self._limits.n_of[self._owner] += 1

    @property
    def _is_above_share(self) -> bool:
        """Test for an address that has more than its share while others want connections."""
        if self._is_of_all or self.loop.time() > self._limits.wanted_until:
            return False
        return self._limits.n_of[self._owner] > self._limits.share

    def _n_taken(self) -> int:
        # Counted one by one only where there may be too many.
        if len(self.connections) <= self._limits.most:
            return len(self.connections) - 1
        return sum(not one._is_in_reserve for one in self._others())

    def _has_room(self) -> bool:
        """Tell whether there is a place for it outside the reserve, perhaps that of another connection."""
        others = [one for one in self._others() if not one._is_in_reserve]
        if self._is_above_share:
            return self._displace(one for one in others if one._owner == self._owner)
        return len(others) < self._limits.most or self._displace(others)

    def _fits_reserve(self) -> bool:
        reserve = [one for one in self._others() if one._is_in_reserve]
        return len(reserve) < _RESERVE or self._displace(reserve)

    def _others(self) -> Iterator[_Connection]:
        for one in self.connections:
            if isinstance(one, _Connection) and one is not self and not one.transport.is_closing():
                yield one

    def _displace(self, others: Iterable[_Connection]) -> bool:
        """Take the place of another connection, of an address that has no fewer."""
        found = ((one._rank, self._limits.n_of[one._owner], one) for one in others)
        own, share = self._limits.n_of[self._owner], self._limits.share
        # Who sends is cut off for the sake of those alone who have less. What waits at a proxy waits for all.
        may_go = [
            (n <= share, rank, -n, one._age, one)
            for rank, n, one in found
            if rank is not None
            and (n >= own + (rank == _SENDS) or (self._is_of_proxy and one._is_of_all and rank != _SENDS))
        ]
        if not may_go:
            return False
        _, rank, *_, given_up = min(may_go)
        if rank == _IDLE:
            given_up.transport.close()
        elif rank == _SENDS and given_up.cycle is not None and given_up.cycle.response_started:
            given_up.transport.abort()
        else:
            given_up._refuse_for_many()
        return True

    def _is_one_too_many(self) -> bool:
        """Tell whether a request, whose head is there, is not to be answered for want of a connection."""
        limits = self._limits
        if self._is_of_proxy:
            for_whom = limits.forwarded_for(value for name, value in self.headers if name == _FORWARDED)
            self._belongs_to(for_whom or (self.client or ("",))[0])
        if self.url.partition(b"?")[0] in _PROBES:
            return False
        if self._is_in_reserve:
            if limits.n_of[self._owner] <= limits.share:
                limits.wanted_until = self.loop.time() + _WANTED_SECONDS
            self._is_in_reserve = not self._has_room()
            return self._is_in_reserve
        return self._is_of_proxy and self._is_above_share

    def _refuse_for_many(self) -> None:
        self._refuse(503, "too-many-connections", "the server has as many connections as it takes")

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
        if self._is_in_reserve and self._is_reading_head:
            self._refuse_for_many()
        elif self._is_reading_head and self._n_head_bytes:
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


@lru_cache(maxsize=4096)
def _network_of(host: str) -> str:
    """Network of who has an address: of IPv6, everybody has as many as there are in a network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
