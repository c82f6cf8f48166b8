"""Limits on requests: how many a client may send in a time, and how many may wait at once."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from prometheus_client import CollectorRegistry, Gauge

from vicinal.service.errors import RedisAwayError, TooManyRequestsError
from vicinal.service.http.security import key_in
from vicinal.service.redis_link import RedisLink

__all__ = ["Admission", "RateLimit", "admit", "limit_rate"]

_LIMITED_PATHS = "/v1/"
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


async def limit_rate(request: Request) -> None:
    """A dependency that holds every client to the rate limit, if there is one."""
    rate_limit: RateLimit | None = request.app.state.rate_limit
    if rate_limit is not None and request.url.path.startswith(_LIMITED_PATHS):
        await run_in_threadpool(rate_limit.check, _client_of(request))


async def admit(request: Request) -> AsyncIterator[None]:
    """A dependency that turns searches away when too many wait."""
    admission: Admission = request.app.state.admission
    with admission.admitted():
        yield


def _client_of(request: Request) -> str:
    """The known API key, hashed, since Redis need not know it; else the address."""
    key = key_in(request)
    if key in request.app.state.settings.api_keys:
        return "key " + hashlib.sha256(key.encode()).hexdigest()[:16]
    return "address " + (request.client.host if request.client else "unknown")


def _shared_limiter(link: RedisLink) -> SlidingWindowCounterRateLimiter:
    # The address names the kind of server only; the pool and its time-outs are the link's.
    storage = RedisStorage(
        "redis://", connection_pool=link.client.connection_pool, key_prefix="vicinal:limits"
    )
    return SlidingWindowCounterRateLimiter(storage)
