"""Limits on requests: how many of a client in a time, and how large one is."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import NamedTuple

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.errors import RedisAwayError, TooManyRequestsError
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.problems import problem
from vicinal.service.http.request_bodies import FORM, MOST_VALUES, count_values, media_type
from vicinal.service.redis_link import RedisLink

# In the scope of a connection: whether its call takes images or embeddings.
LARGE_BODY = "vicinal.large_body"

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


class BodyLimit:
    """ASGI middleware that answers 413 when a body grows beyond a limit, 408 when it comes too slowly, and
    415 when it is compressed.

    A call that takes neither images nor embeddings takes 4 MiB. Values of JSON are counted as they come: a
    body of brackets costs forty times its size once it is parsed.

    Args:
        app: The application behind.
        max_bytes: Largest accepted body of a call that takes images or embeddings.
        seconds: Longest time that a body may take, besides a second for every 16 KiB that came.
        metrics: Counts what is refused.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float, metrics: Metrics) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.metrics = metrics

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return self.app(scope, receive, send)
        headers = Headers(scope=scope)
        most, declared = self._most(scope), headers.get("content-length", "").lstrip("0")
        if "transfer-encoding" not in headers:
            if not declared:
                return self.app(scope, receive, send)
            if declared.isdecimal() and (len(declared) > _MOST_DIGITS or int(declared) > most):
                return self._refuse(_Refusal(413, "body-too-large", _too_large(most)), scope, receive, send)
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            said = f"the body is compressed, Content-Encoding '{coding[:40]}': send it as it is"
            return self._refuse(_Refusal(415, "unsupported-format", said), scope, receive, send)
        return self._counted(most, scope, receive, send)

    def _most(self, scope: Scope) -> int:
        return self.max_bytes if scope.get(LARGE_BODY) else min(self.max_bytes, _SMALL_BODY)

    async def _counted(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on as long as its body is not too large, and comes in time."""
        received = values = 0
        started = is_whole = False
        begun = asyncio.get_running_loop().time()
        refused: _Refusal | None = None
        # Pictures hold any byte; who parses fields of a form counts for itself.
        is_counted = media_type(Headers(scope=scope)) != FORM
        most_values = MOST_VALUES if scope.get(LARGE_BODY) else _MOST_SMALL_VALUES

        async def counting_receive() -> Message:
            nonlocal received, values, is_whole, refused
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(begun + self.seconds + received / _SLOWEST):
                    message = await receive()
            except TimeoutError as error:
                refused = _Refusal(408, "too-slow", f"{received:,} bytes of the body came, and then none")
                raise _RefusedError from error
            body = message.get("body", b"")
            is_whole = not message.get("more_body", False)
            received += len(body)
            values += count_values(body) if is_counted else 0
            if values > most_values:
                many = f"the JSON of the request holds more than {most_values:,} values"
                refused = _Refusal(413, "body-too-large", many)
            if received > most:
                refused = _Refusal(413, "body-too-large", _too_large(most))
            if refused is not None:
                raise _RefusedError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            # The application may answer that it could not read the body; the reason is told below.
            if started or refused is None:
                started = True
                await send(message)

        # Who goes before the body is whole is answered nothing.
        with suppress(_RefusedError, ClientDisconnect):
            await self.app(scope, counting_receive, noting_send)
        if refused is not None and not started:
            await self._refuse(refused, scope, receive, send)

    async def _refuse(self, refused: _Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self.metrics.record_problem(refused.kind)
        await problem(refused.status, refused.kind, refused.reason)(scope, receive, send)


class _Refusal(NamedTuple):
    status: int
    kind: str
    reason: str


def _too_large(most: int) -> str:
    return f"the request is larger than this call takes: {most:,} bytes"


class _RefusedError(Exception):
    pass


def _shared_limiter(link: RedisLink) -> SlidingWindowCounterRateLimiter:
    # The address names the kind of server only; the pool and its time-outs are the link's.
    storage = RedisStorage(
        "redis://", connection_pool=link.client.connection_pool, key_prefix="vicinal:limits"
    )
    return SlidingWindowCounterRateLimiter(storage)
