"""Limits on requests: how many a client sends in a time."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from vicinal.service.errors import RedisAwayError, TooManyRequestsError
from vicinal.service.search.redis_link import RedisLink

_Passed = tuple[RateLimitItem, float]


class RateLimit:
    """Requests a client may send (`100/minute`), counted in Redis, or by each replica while that is away."""

    def __init__(self, text: str, link: RedisLink | None = None) -> None:
        self._limits: list[RateLimitItem] = parse_many(text)
        self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._link = link
        if link is not None:
            pool = link.client.connection_pool
            # The address names the kind of server only; the pool and its time-outs are the link's.
            storage = RedisStorage("redis://", connection_pool=pool, key_prefix="vicinal:limits")
            self._shared = SlidingWindowCounterRateLimiter(storage)

    def check(self, client: str) -> None:
        """Count a request."""
        passed = self._passed(client)
        if passed is not None:
            limit, reset_time = passed
            seconds = max(1, math.ceil(reset_time - time.time()))
            raise TooManyRequestsError(f"more requests than rate_limit = {limit} allows", seconds=seconds)

    def _passed(self, client: str) -> _Passed | None:
        if self._link is not None:
            # When Redis is away the link has said so, and this process counts alone until it is back.
            with suppress(RedisAwayError):
                return self._link.ask(lambda _: self._passed_of(self._shared, client))
        return self._passed_of(self._own, client)

    def _passed_of(self, limiter: SlidingWindowCounterRateLimiter, client: str) -> _Passed | None:
        """The limit that the request passes, and when the client may come again."""
        for limit in self._limits:
            if not limiter.hit(limit, client):
                return limit, limiter.get_window_stats(limit, client).reset_time
        return None
