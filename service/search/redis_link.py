"""Link to Redis with a time-out, and a circuit breaker that tries again after `retry_seconds`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge

from vicinal.models.errors import MissingPackageError, in_one_line
from vicinal.service.errors import RedisAwayError, RequestError

if TYPE_CHECKING:
    from redis import Redis

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RedisState:
    """State of Redis; `problem` says why it is left alone, None while it answers."""

    available: bool
    problem: str | None = None


class RedisLink:
    """Connection pool and circuit breaker of this process; what `client` is asked directly is not watched."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 0.25,
        retry_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.failures = _connect(url, timeout_seconds)
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._retry_at = 0.0
        self._up: Gauge | None = None
        self._n_failures: Counter | None = None

    @property
    def state(self) -> RedisState:
        """State that the last question showed."""
        problem = self._problem
        return RedisState(problem is None, problem)

    def ask(self, question: Callable[[Redis], Answer]) -> Answer:
        """Ask Redis, unless it failed a moment ago."""
        with self._lock:
            now = self._clock()
            if self._problem is not None and now < self._retry_at:
                raise RedisAwayError(self._problem)
            # Where it is away one question finds out; others are answered without Redis meanwhile.
            self._retry_at = now + self._retry_seconds
        try:
            answer = question(self.client)
        except self.failures as error:
            problem = f"Redis does not answer: {in_one_line(error)}"
            self._note(problem)
            raise RedisAwayError(problem) from error
        if self._problem is not None:
            self._note(None)
        return answer

    def register(self, registry: CollectorRegistry) -> None:
        """Show the state of the link in a registry of metrics."""
        self._up = Gauge(
            "vicinal_redis_up",
            "Whether Redis answers",
            registry=registry,
            # Of several processes each has a link of its own, and one that is down is enough to be told.
            multiprocess_mode="livemin",
        )
        self._up.set(self.state.available)
        self._n_failures = Counter(
            "vicinal_redis_failures", "Questions that Redis did not answer", registry=registry
        )

    def _note(self, problem: str | None) -> None:
        with self._lock:
            was_away, self._problem = self._problem is not None, problem
            self._retry_at = self._clock() + self._retry_seconds
        if self._up is not None:
            self._up.set(problem is None)
        if problem is None:
            logger.warning("Redis answers again")
            return
        if self._n_failures is not None:
            self._n_failures.inc()
        if not was_away:
            logger.warning("%s; going on without it, trying again every %g s", problem, self._retry_seconds)


def _connect(url: str, timeout_seconds: float) -> tuple[Redis, tuple[type[Exception], ...]]:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise MissingPackageError("redis", "redis", "VICINAL_REDIS_URL") from error
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        # Trying again is the circuit breaker's decision; on its own the client would multiply the waits.
        "retry": Retry(NoBackoff(), 0),
    }
    try:
        return redis.Redis.from_url(url, **options), (redis.RedisError, OSError)
    except ValueError as error:
        raise RequestError(f"VICINAL_REDIS_URL is not a Redis URL: {error}") from error
