"""Limits on requests: 429 with the time to come again, over Redis for all replicas or alone without it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from tests.service.redis_server import RedisServer
from tests.service.types import MakeSettings
from tests.waiting import wait_until
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http.app import create_app
from vicinal.service.http.limits import RateLimit
from vicinal.service.http.state import state_of
from vicinal.service.search.redis_link import RedisLink

KEYS = {"alice": ["search"], "bob": ["search"]}


@pytest.fixture
def link(redis_server: RedisServer, patience: float) -> RedisLink:
    return RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=60.0)


@pytest.fixture
def limited(calibrated_dir: Path, make_settings: MakeSettings) -> TestClient:
    """Client of an application that takes two requests an hour."""
    return TestClient(create_app(make_settings(calibrated_dir, rate_limit="2/hour", api_keys=KEYS)))


def n_accepted(limit: RateLimit, client: str, n_sent: int = 6) -> int:
    accepted = 0
    for _ in range(n_sent):
        try:
            limit.check(client)
        except TooManyRequestsError:
            break
        accepted += 1
    return accepted


def test_a_client_is_stopped_at_its_limit_and_others_are_not() -> None:
    limit = RateLimit("3/hour")
    assert [n_accepted(limit, client) for client in ("a", "b", "a")] == [3, 3, 0]


def test_the_tighter_of_two_limits_holds() -> None:
    assert n_accepted(RateLimit("100/hour;2/minute"), "a") == 2


def test_replicas_count_together_in_redis(shared_link: RedisLink) -> None:
    first, second = RateLimit("3/hour", shared_link), RateLimit("3/hour", shared_link)
    assert [n_accepted(first, "a", 2), n_accepted(second, "a")] == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "patience"), [("stop", 60.0), ("freeze", 1.0)], indirect=["patience"])
def test_without_redis_every_replica_counts_alone(
    link: RedisLink, redis_server: RedisServer, way: str
) -> None:
    limit = RateLimit("3/hour", link)
    n_accepted(limit, "a")
    getattr(redis_server, way)()
    assert [n_accepted(limit, "a"), n_accepted(limit, "a")] == [3, 0]


def test_the_refusal_says_when_to_come_again(limited: TestClient) -> None:
    headers = {"X-API-Key": "alice"}
    answers = [limited.get("/v1/galleries", headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 3600
    assert answers[-1].json()["type"] == "urn:vicinal:problem:too-many-requests"
    assert "rate_limit" in answers[-1].json()["detail"]


def test_every_key_has_a_limit_of_its_own_and_strangers_share_their_address_s(limited: TestClient) -> None:
    def status(key: str) -> int:
        return limited.get("/v1/galleries", headers={"X-API-Key": key}).status_code

    assert [status(key) for key in ("alice", "alice", "alice", "bob")] == [200, 200, 429, 200]
    assert [status(key) for key in ("guess-1", "guess-2", "guess-3")] == [401, 401, 429]


def test_health_is_not_limited(limited: TestClient) -> None:
    assert {limited.get(path).status_code for path in ("/livez", "/readyz") * 3} == {200}


def test_guesses_at_the_key_of_the_metrics_are_limited(limited: TestClient) -> None:
    assert [limited.get("/metrics").status_code for _ in range(3)] == [401, 401, 429]


def test_open_metrics_are_not_limited(data_dir: Path, make_settings: MakeSettings) -> None:
    client = TestClient(create_app(make_settings(data_dir, rate_limit="1/hour")))
    assert [client.get("/metrics").status_code for _ in range(3)] == [200, 200, 200]


def test_beyond_the_longest_wait_a_search_is_429_before_its_body_is_read(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(make_settings(calibrated_dir))
    full = TooManyRequestsError("too many searches wait", seconds=3)
    monkeypatch.setattr(state_of(app).searches, "check", Mock(side_effect=full))
    client = TestClient(app)
    for path in ("search", "search/batch"):
        answer = client.post(f"/v1/galleries/shoes/{path}", content=b"no JSON")
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "3")
        assert answer.json()["detail"] == "too many searches wait"
    # Other calls do not wait for a thread that searches.
    assert client.get("/v1/galleries/shoes").status_code == 200
    assert b'vicinal_problems_total{type="too-many-requests"} 2.0' in client.get("/metrics").content


@pytest.mark.slow
def test_a_search_that_fails_leaves_the_queue(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    app = create_app(make_settings(calibrated_dir))
    client = TestClient(app)
    for _ in range(3):
        assert client.post("/v1/galleries/none/search", json={"item_id": "x"}).status_code == 404
    wait_until(lambda: b"vicinal_searches_under_way 0.0" in client.get("/metrics").content)
