"""The link to Redis: bounded waits, one warning, and a way back."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry
from redis import Redis

from tests.logs import said_by
from tests.service.redis_server import RedisServer
from tests.waiting import Clock
from vicinal.service.errors import RedisAwayError, RequestError
from vicinal.service.redis_link import RedisLink

RETRY_SECONDS = 5.0


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def link(redis_server: RedisServer, clock: Clock, patience: float) -> RedisLink:
    return RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=RETRY_SECONDS, clock=clock)


def ping(client: Redis) -> bool:
    return bool(client.ping())


@pytest.mark.slow
def test_a_redis_that_runs_answers(link: RedisLink) -> None:
    assert (link.ask(ping), link.state.available, link.state.problem) == (True, True, None)


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


@pytest.mark.slow
def test_of_many_questions_after_the_retry_time_one_is_let_through(
    link: RedisLink, redis_server: RedisServer, clock: Clock
) -> None:
    asked = []

    def count(client: Redis) -> bool:
        asked.append(1)
        return ping(client)

    redis_server.stop()
    for _ in range(3):
        with pytest.raises(RedisAwayError):
            link.ask(count)
    clock.now += RETRY_SECONDS
    for _ in range(3):
        with pytest.raises(RedisAwayError):
            link.ask(count)
    assert len(asked) == 2


@pytest.mark.slow
def test_going_and_coming_back_are_logged_once_each(
    link: RedisLink, redis_server: RedisServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.stop()
    for _ in range(3):
        clock.now += RETRY_SECONDS
        with pytest.raises(RedisAwayError):
            link.ask(ping)
    redis_server.start()
    clock.now += RETRY_SECONDS
    for _ in range(2):
        link.ask(ping)
    logged = said_by(caplog, RedisLink.__module__)
    assert ["going on without it" in logged[0], logged[1:]] == [True, ["Redis answers again"]]


@pytest.mark.slow
def test_the_metrics_show_the_state_and_count_failures(link: RedisLink, redis_server: RedisServer) -> None:
    registry = CollectorRegistry()
    link.register(registry)
    link.ask(ping)
    before = registry.get_sample_value("vicinal_redis_up")
    redis_server.stop()
    with pytest.raises(RedisAwayError):
        link.ask(ping)
    after = registry.get_sample_value("vicinal_redis_up")
    assert (before, after, registry.get_sample_value("vicinal_redis_failures_total")) == (1.0, 0.0, 1.0)


@pytest.mark.slow
def test_an_error_that_is_none_of_redis_goes_through(link: RedisLink) -> None:
    def broken(client: Redis) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        link.ask(broken)
    assert link.state.available


def test_an_address_of_something_else_is_refused() -> None:
    with pytest.raises(RequestError, match="VICINAL_REDIS_URL"):
        RedisLink("http://localhost:6379")
