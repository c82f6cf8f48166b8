"""Limits on requests: how many of a client in a time, how many may wait at once, and how large one is."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from prometheus_client import CollectorRegistry, Gauge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.errors import RedisAwayError, TooManyRequestsError
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.problems import problem
from vicinal.service.redis_link import RedisLink

__all__ = ["Admission", "BodyLimit", "RateLimit"]

_Passed = tuple[RateLimitItem, float]


class RateLimit:
    """Requests a client may send; counted in Redis for all replicas, or in this process.

    While Redis is away every replica counts on its own, so that a client gets at most as many times its
    limit as there are replicas.

    Args:
        text: Such as `100/minute` or `10/second;1000/hour`.
        link: Link to Redis, if it is to be used.

    Raises:
        ValueError: The text is no rate.
    """

    def __init__(self, text: str, link: RedisLink | None = None) -> None:
        self._limits: list[RateLimitItem] = parse_many(text)
        self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._link = link
        self._shared = None if link is None else _shared_limiter(link)

    def check(self, client: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: The client has sent too many.
        """
        passed = self._passed(client)
        if passed is not None:
            limit, reset_time = passed
            seconds = max(1, math.ceil(reset_time - time.time()))
            raise TooManyRequestsError(f"more requests than rate_limit = {limit} allows", seconds=seconds)

    def _passed(self, client: str) -> _Passed | None:
        if self._link is not None and self._shared is not None:
            shared = self._shared
            # When Redis is away the link has said so, and this process counts alone until it is back.
            with suppress(RedisAwayError):
                return self._link.ask(lambda _: self._passed_of(shared, client))
        return self._passed_of(self._own, client)

    def _passed_of(self, limiter: SlidingWindowCounterRateLimiter, client: str) -> _Passed | None:
        """The limit that the request passes, and when the client may come again."""
        for limit in self._limits:
            if not limiter.hit(limit, client):
                return limit, limiter.get_window_stats(limit, client).reset_time
        return None


class Admission:
    """Counts requests under way, and turns away those beyond a limit.

    Args:
        most: Most requests that are answered or wait at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._n = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count one request while it lasts; to be used by the event loop's thread only.

        Raises:
            TooManyRequestsError: There are too many.
        """
        if self._n >= self._most:
            raise TooManyRequestsError(
                f"{self._n} searches are under way or wait, at most max_queue = {self._most} may", seconds=1
            )
        self._n += 1
        try:
            yield
        finally:
            self._n -= 1

    def register(self, registry: CollectorRegistry) -> None:
        """Show the number of requests under way in a registry of metrics."""
        gauge = Gauge("vicinal_searches_under_way", "Searches answered or waiting", registry=registry)
        gauge.set_function(lambda: float(self._n))


class BodyLimit:
    """ASGI middleware that answers 413 when a body grows beyond a limit.

    Args:
        app: The application behind.
        max_bytes: Largest accepted body.
        metrics: Counts what is refused.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, metrics: Metrics) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.metrics = metrics

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return self.app(scope, receive, send)
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and b"transfer-encoding" not in headers:
            # The server reads no more than was declared.
            fits = int(declared) <= self.max_bytes
            return (self.app if fits else self._refuse)(scope, receive, send)
        return self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on whose length nobody has declared, as long as it is not too large."""
        received = 0
        started = False

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise _TooLargeError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            # The application may answer that it could not read the body; the reason is told below.
            if started or received <= self.max_bytes:
                started = True
                await send(message)

        with suppress(_TooLargeError):
            await self.app(scope, counting_receive, noting_send)
        if received > self.max_bytes and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.metrics.record_problem("body-too-large")
        answer = problem(
            413, "body-too-large", f"the request is larger than max_request_bytes = {self.max_bytes:,}"
        )
        await answer(scope, receive, send)


class _TooLargeError(Exception):
    pass


def _shared_limiter(link: RedisLink) -> SlidingWindowCounterRateLimiter:
    # The address names the kind of server only; the pool and its time-outs are the link's.
    storage = RedisStorage(
        "redis://", connection_pool=link.client.connection_pool, key_prefix="vicinal:limits"
    )
    return SlidingWindowCounterRateLimiter(storage)
