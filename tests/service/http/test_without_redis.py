"""A server whose Redis goes away in mid-flight: slower at most, never without an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.redis_server import RedisServer
from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_until
from vicinal.service.http.serving.server import serving

pytestmark = pytest.mark.slow

OUTAGES = [("stop", "start", 60.0), ("freeze", "thaw", 1.0)]
SEARCH = "/v1/galleries/shoes/search"


@pytest.fixture
def http(
    calibrated_dir: Path, make_settings: MakeSettings, redis_server: RedisServer, patience: float
) -> Iterator[httpx.Client]:
    """Client of a real server that uses Redis for everything, and is asked again soon after a failure."""
    settings = make_settings(
        calibrated_dir,
        redis_url=redis_server.url,
        redis_timeout_seconds=patience,
        redis_retry_seconds=1.0,
        rate_limit="1000/minute",
        run_jobs=False,
    )
    with serving(settings) as url, httpx.Client(base_url=url, timeout=30.0) as client:
        yield client


@pytest.fixture
def queries(view: View, encode: Encode) -> list[bytes]:
    return [encode(view(label, 8)) for label in range(6)]


def answers(http: httpx.Client, queries: list[bytes]) -> list[Any]:
    """What is found; a search that fails fails the test."""
    found = []
    for query in queries:
        response = http.post(SEARCH, files={"image": ("q.png", query, "image/png")})
        assert response.status_code == 200, response.text
        body = response.json()
        found.append((body["no_match"], [(match["id"], match["score"]) for match in body["matches"]]))
    return found


def redis_state(http: httpx.Client) -> tuple[int, bool]:
    response = http.get("/readyz")
    return response.status_code, response.json()["redis"]["available"]


def sample(http: httpx.Client, series: str) -> float:
    (value,) = re.findall(rf"^{re.escape(series)} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return float(value)


@pytest.mark.parametrize(("go_away", "come_back", "patience"), OUTAGES, indirect=["patience"])
def test_searches_say_the_same_while_readiness_and_metrics_tell_of_it_and_it_recovers(
    http: httpx.Client, queries: list[bytes], redis_server: RedisServer, go_away: str, come_back: str
) -> None:
    def state() -> tuple[int, bool, float]:
        return *redis_state(http), sample(http, "vicinal_redis_up")

    wait_until(lambda: answers(http, queries[:1]) and redis_state(http)[1])
    before, states = answers(http, queries[:3]), [state()]
    getattr(redis_server, go_away)()
    during = answers(http, queries)
    states.append(state())
    getattr(redis_server, come_back)()
    wait_until(lambda: answers(http, queries[:1]) and redis_state(http)[1])
    assert [*states, state()] == [(200, True, 1.0), (200, False, 0.0), (200, True, 1.0)]
    assert (during[:3], answers(http, queries)) == (before, during)


def test_a_server_starts_and_answers_without_redis(
    calibrated_dir: Path,
    make_settings: MakeSettings,
    queries: list[bytes],
    redis_server: RedisServer,
) -> None:
    redis_server.stop()
    settings = make_settings(calibrated_dir, redis_url=redis_server.url, rate_limit="1000/minute")
    with serving(settings) as url, httpx.Client(base_url=url, timeout=30.0) as client:
        assert len(answers(client, queries)) == len(queries)
        assert redis_state(client) == (200, False)
