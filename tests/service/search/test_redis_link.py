"""The link to Redis: bounded waits, one warning, and a way back."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from tests.service.redis_server import RedisServer
from tests.waiting import Clock
from vicinal.service.errors import RedisAwayError, RequestError
from vicinal.service.search.redis_link import RedisLink

RETRY_SECONDS = 5.0


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def link(redis_server: RedisServer, clock: Clock, patience: float) -> RedisLink:
    return RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=RETRY_SECONDS, clock=clock)


def ping(client: Redis) -> bool:
    return bool(client.ping())


def test_a_redis_that_runs_answers(shared_link: RedisLink) -> None:
    assert (shared_link.ask(ping), shared_link.state.available, shared_link.state.problem) == (
        True,
        True,
        None,
    )


@pytest.mark.slow
def test_a_stopped_redis_is_away_and_asked_again_only_after_the_retry_time(
    link: RedisLink, redis_server: RedisServer, clock: Clock
) -> None:
    redis_server.stop()
    with pytest.raises(RedisAwayError, match="does not answer"):
        link.ask(ping)
    redis_server.start()
    clock.now += RETRY_SECONDS - 0.1
    with pytest.raises(RedisAwayError):
        link.ask(ping)
    clock.now += 0.2
    assert link.ask(ping)
    assert link.state.available


@pytest.mark.slow
@pytest.mark.parametrize("patience", [1.0], indirect=True)
def test_a_frozen_redis_is_away_until_it_goes_on(
    link: RedisLink, redis_server: RedisServer, clock: Clock
) -> None:
    link.ask(lambda client: client.set("name", "before"))
    redis_server.freeze()
    asked_at = time.monotonic()
    with pytest.raises(RedisAwayError, match=r"(?i)timeout"):
        link.ask(lambda client: client.get("other"))
    # The time-out is a second; a client that waits on its own does so for much longer.
    assert time.monotonic() - asked_at < 20.0
    redis_server.thaw()
    clock.now += RETRY_SECONDS
    # Not the late answer to the question that was given up.
    assert link.ask(lambda client: client.get("name")) == b"before"


def test_an_address_of_something_else_is_refused() -> None:
    with pytest.raises(RequestError, match="VICINAL_REDIS_URL"):
        RedisLink("http://localhost:6379")
