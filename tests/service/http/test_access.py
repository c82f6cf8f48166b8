"""Access: every request has an id, a line in the log and a place in the metrics; none tells a secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app
from vicinal.service.observability.logs import request_id

SEARCH = "/v1/galleries/shoes/search"
KEY = "a-very-secret-key"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    settings = make_settings(data_dir, api_keys={KEY: ("search",)}, open_metrics=True)
    return TestClient(create_app(settings), raise_server_exceptions=False)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """What the lines of the access log say."""
    found: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append({**vars(record), "id": request_id()})  # type: ignore[method-assign]
    logger = logging.getLogger("vicinal.access")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(before)


def with_key(**headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}", **headers}


def counted(client: TestClient) -> set[tuple[str, str, str]]:
    """Method, route and status of what was counted."""
    series = set()
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("vicinal_http_request_seconds_count{"):
            labels = dict(pair.split("=") for pair in line[line.index("{") + 1 : line.rindex("}")].split(","))
            series.add(tuple(labels[name].strip('"') for name in ("method", "route", "status")))
    return series  # type: ignore[return-value]


def test_a_request_is_told_by_its_route(client: TestClient, told: list[dict[str, Any]]) -> None:
    response = client.post(SEARCH, json={"item_id": "plain/view 0.png"}, headers=with_key())
    (line,) = told
    fields = ("method", "route", "status", "gallery", "client")
    assert [line[name] for name in fields] == [
        "POST",
        "/v1/galleries/{gallery}/search",
        200,
        "shoes",
        "testclient",
    ]
    assert (line["bytes"], line["milliseconds"] > 0) == (len(response.content), True)


def test_the_id_of_a_client_comes_back_in_answer_log_and_problem(
    client: TestClient, told: list[dict[str, Any]]
) -> None:
    response = client.get("/v1/galleries/boots", headers=with_key(**{"X-Request-ID": "trace-7"}))
    assert (response.status_code, response.headers["X-Request-ID"]) == (404, "trace-7")
    assert (response.json()["request_id"], told[0]["id"]) == ("trace-7", "trace-7")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/v1/galleries", {}, 401),
        ("POST", "/v1/galleries/shoes/items", with_key(), 403),
        ("GET", "/nowhere", {}, 404),
        ("DELETE", "/livez", {}, 405),
        ("POST", SEARCH, with_key(), 422),
    ],
)
def test_refused_requests_have_an_id_too(
    client: TestClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    response = client.request(method, path, headers=headers)
    assert response.status_code == status
    assert response.json()["request_id"] == response.headers["X-Request-ID"]


def test_nothing_that_may_be_secret_is_told(client: TestClient, told: list[dict[str, Any]]) -> None:
    """Neither the key nor the address below the route, the query, a header or the body."""
    client.get(
        "/v1/galleries/shoes/items/hidden-item?cursor=hidden-query", headers=with_key(Cookie="hidden=1")
    )
    client.post(SEARCH, json={"item_id": "hidden-body"}, headers=with_key())
    client.get("/v1/galleries/shoes", headers={"X-API-Key": "hidden-wrong-key"})
    text = repr([{k: v for k, v in line.items() if k != "args"} for line in told])
    assert len(told) == 3
    assert ("hidden" in text, KEY in text) == (False, False)


def test_requests_are_counted_by_route_and_status(client: TestClient) -> None:
    client.post(SEARCH, json={"item_id": "plain/view 0.png"}, headers=with_key())
    client.get("/v1/galleries/shoes")
    found = counted(client)
    assert ("POST", "/v1/galleries/{gallery}/search", "200") in found
    assert ("GET", "/v1/galleries/{gallery}", "401") in found
