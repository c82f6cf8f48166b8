"""Limits on requests: how many of a client in a time, and how large one is."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from vicinal.models.errors import UnsupportedFormatError
from vicinal.service.errors import BodyTooLargeError, BodyTooSlowError, RedisAwayError, TooManyRequestsError
from vicinal.service.http.request_bodies import FORM, MOST_VALUES, count_values, media_type
from vicinal.service.redis_link import RedisLink

# Of a call that takes neither images nor embeddings.
_SMALL_BODY = 4 * 2**20
_MOST_DIGITS = 18
# Bytes a second of a body, at the least.
_SLOWEST = 16 * 2**10
_MOST_SMALL_VALUES = 200_000
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
        """Count a request."""
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


def limited_body(scope: Scope, receive: Receive, *, most: int, is_large: bool, seconds: float) -> Receive:
    """What reads the body of a request as long as it is not too large, and comes in time.

    A call that takes neither images nor embeddings takes 4 MiB. Values of JSON are counted as they come: a
    body of brackets costs forty times its size once it is parsed.

    Args:
        most: Largest accepted body of a call that takes images or embeddings.
        is_large: Whether it is such a call.
        seconds: Longest time that a body may take, besides a second for every 16 KiB that came.

    Raises:
        BodyTooLargeError: It says itself that it is too large.
        UnsupportedFormatError: It is compressed.
    """
    most = most if is_large else min(most, _SMALL_BODY)
    most_values = MOST_VALUES if is_large else _MOST_SMALL_VALUES
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "").lstrip("0")
    if "transfer-encoding" not in headers:
        if not declared:
            return receive
        if declared.isdecimal() and (len(declared) > _MOST_DIGITS or int(declared) > most):
            raise _too_large(most)
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnsupportedFormatError(
            f"the body is compressed, Content-Encoding '{coding[:40]}': send it as it is"
        )
    received = values = 0
    is_whole = False
    begun = asyncio.get_running_loop().time()
    # Pictures hold any byte; who parses fields of a form counts for itself.
    is_counted = media_type(headers) != FORM

    async def counted() -> Message:
        nonlocal received, values, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(begun + seconds + received / _SLOWEST):
                message = await receive()
        except TimeoutError as error:
            raise BodyTooSlowError(f"{received:,} bytes of the body came, and then none") from error
        body = message.get("body", b"")
        is_whole = not message.get("more_body", False)
        received += len(body)
        values += count_values(body) if is_counted else 0
        if values > most_values:
            raise BodyTooLargeError(f"the JSON of the request holds more than {most_values:,} values")
        if received > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request is larger than this call takes: {most:,} bytes")


def _shared_limiter(link: RedisLink) -> SlidingWindowCounterRateLimiter:
    # The address names the kind of server only; the pool and its time-outs are the link's.
    storage = RedisStorage(
        "redis://", connection_pool=link.client.connection_pool, key_prefix="vicinal:limits"
    )
    return SlidingWindowCounterRateLimiter(storage)
