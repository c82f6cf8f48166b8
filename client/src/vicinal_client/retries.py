"""Retries: which requests are sent again, when, and for how long; and the steps that a call takes.

A call is written once, as a generator of steps (`Attempt`, `Pause`, `Together`). `Client` and `AsyncClient`
take the steps, each in its way, and hand back what came of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import httpx

from vicinal_client.errors import NoAnswerError, ProblemError, lost_connection, problem_of

__all__ = ["Attempt", "Pause", "Retries", "Step", "Steps", "Together", "attempts"]

T = TypeVar("T")

# The server refuses these before it does anything, so that any request may come again.
_REFUSED_UNDONE = (408, 425, 429)
# Whether it was done is not known: only what may be done twice comes again.
_PERHAPS_DONE = (502, 503, 504)


@dataclass(frozen=True)
class Attempt:
    """Send a request once.

    Attributes:
        method: HTTP method.
        path: Path from the server's address, percent-encoded.
        arguments: What `httpx.Client.build_request` takes besides.
        repeatable: Whether doing it twice is the same as doing it once.
        accepted: Status beyond 2xx that is an answer and no problem.
    """

    method: str
    path: str
    arguments: dict[str, Any]
    repeatable: bool
    accepted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Together:
    """Take several generators of steps, so many at a time.

    Attributes:
        calls: The generators; asked for the next one when there is room for it, beside the caller.
        n: How many are under way at once.
        on_done: Called with the result of each, one at a time; not in the order of the calls.
    """

    calls: Iterator[Steps[Any]]
    n: int
    on_done: Callable[[Any], None]


Step: TypeAlias = Attempt | Pause | Together
Steps: TypeAlias = Generator[Step, Any, T]


@dataclass(frozen=True)
class Retries:
    """Rules of how often and how long a request is sent again.

    The wait doubles from one attempt to the next, and is drawn at random below that, so that many clients do
    not come at once. It is never shorter than what the server asks for by `Retry-After`.

    Attributes:
        attempts: Most attempts, the first one included; 1 for no retries, None for any number.
        seconds: Longest time from the first attempt to the last one.
        first_wait: Longest wait before the second attempt, in seconds.
        longest_wait: Longest wait before any other; `Retry-After` may ask for more.
        clock: Seconds that never run back.
        draw: A random number in [0, 1).
    """

    attempts: int | None = 6
    seconds: float = 60.0
    first_wait: float = 0.5
    longest_wait: float = 20.0
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    def wait(self, n: int, error: NoAnswerError | ProblemError) -> float:
        """Seconds to wait after the attempt number n, from 1, has failed."""
        # The exponent is bounded, because a float is.
        most = min(self.longest_wait, self.first_wait * 2.0 ** min(n - 1, 30))
        asked = error.retry_after if isinstance(error, ProblemError) else None
        return max(most * self.draw(), asked or 0.0)

    def allow(self, n: int, seconds: float) -> bool:
        """Say whether another attempt may follow n of them, so many seconds after the first one."""
        return (self.attempts is None or n < self.attempts) and seconds <= self.seconds


def attempts(attempt: Attempt, retries: Retries) -> Steps[httpx.Response]:
    """Send a request until it is answered, or not worth sending again.

    Raises:
        NoAnswerError: There is no answer, whatever was tried.
        ProblemError: The server answered with a problem.
    """
    began = retries.clock()
    n = 0
    while True:
        n += 1
        failed: NoAnswerError | ProblemError
        cause: httpx.TransportError | None = None
        try:
            response: httpx.Response = yield attempt
            if response.is_success or response.status_code in attempt.accepted:
                return response
            failed = problem_of(response)
            again = _may_come_again(attempt, failed.status)
        except httpx.TransportError as error:
            failed, cause = lost_connection(error), error
            # A connection that was never made has carried nothing.
            again = attempt.repeatable or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            again = again and not isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
        wait = retries.wait(n, failed)
        if not again or not retries.allow(n, retries.clock() - began + wait):
            raise failed from cause
        yield Pause(wait)


def _may_come_again(attempt: Attempt, status: int) -> bool:
    return status in _REFUSED_UNDONE or (attempt.repeatable and status in _PERHAPS_DONE)
