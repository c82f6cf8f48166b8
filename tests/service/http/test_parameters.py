"""Query parameters: a route answers to those of its document, and refuses any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import ROUTERS, create_app
from vicinal.service.http.gate import OpenRoute

ITEMS = "/v1/galleries/shoes/items"
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def app(calibrated_dir: Path, make_settings: MakeSettings) -> FastAPI:
    return create_app(make_settings(calibrated_dir, api_keys={"key": ("search", "write", "admin")}))


@pytest.fixture(scope="module")
def keyed(app: FastAPI) -> TestClient:
    return TestClient(app, headers={"X-API-Key": "key"}, raise_server_exceptions=False)


def documented(app: FastAPI) -> Iterator[tuple[str, str, list[str]]]:
    """Method, path and query parameters of every route of the API, as its document has them."""
    paths: dict[str, Any] = app.openapi()["paths"]
    for path, operations in paths.items():
        for method in operations.keys() & set(METHODS):
            parameters = operations[method].get("parameters", [])
            if path.startswith("/v1/"):
                yield method, path, [one["name"] for one in parameters if one["in"] == "query"]


def test_a_misspelled_parameter_is_refused_with_the_right_one(keyed: TestClient) -> None:
    answer = keyed.get(ITEMS, params={"sise": 1})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:vicinal:problem:invalid-request"
    assert answer.json()["detail"] == (
        "'sise' is no parameter of GET /v1/galleries/{gallery}/items: did you mean 'size'?"
    )


def test_a_parameter_like_no_other_is_told_which_there_are(keyed: TestClient) -> None:
    assert keyed.get(ITEMS, params={"qq": 1}).json()["detail"].endswith(": it has after, at, filter, size")
    assert keyed.get("/v1/galleries", params={"size": 1}).json()["detail"].endswith(": it has none")


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("DELETE", "/v1/galleries/shoes", "confirm=other&confirm=shoes"),
        ("DELETE", "/v1/galleries/shoes/item", "id=other&id=plain/view 0.png"),
        ("GET", ITEMS, "size=1&size=1"),
        ("PUT", "/v1/galleries/more", "space=clip&dim=3&space=dino"),
        ("GET", "/v1/galleries/shoes/item", "id=a&%69d=b"),
    ],
)
def test_a_parameter_comes_once(keyed: TestClient, method: str, path: str, query: str) -> None:
    """Of two, one server, proxy or client takes the first and another the last."""
    answer = keyed.request(method, f"{path}?{query}")
    assert answer.status_code == 422
    assert "comes more than once" in answer.json()["detail"]
    assert keyed.get("/v1/galleries/shoes/item", params={"id": "plain/view 0.png"}).status_code == 200


@pytest.mark.slow
def test_no_route_of_the_api_takes_an_unknown_parameter(app: FastAPI, keyed: TestClient) -> None:
    routes = list(documented(app))
    assert len(routes) > 25
    for method, path, _ in routes:
        answer = keyed.request(method, path.replace("{gallery}", "shoes"), params={"nosuch": 1})
        assert answer.status_code == 422, (method, path)
        assert "'nosuch' is no parameter of" in answer.json()["detail"], (method, path)


def test_every_documented_parameter_is_known(app: FastAPI, keyed: TestClient) -> None:
    """Negative control: what a route has is no longer told to be unknown."""
    checked = 0
    for method, path, names in documented(app):
        for name in names:
            answer = keyed.request(method, path.replace("{gallery}", "nosuch"), params={name: "x"})
            assert "is no parameter" not in answer.text, (method, path, name)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("path", ["/?gallery=shoes&nosuch=1", "/livez?nosuch=1"])
def test_pages_and_probes_take_any(keyed: TestClient, path: str) -> None:
    assert keyed.get(path).status_code == 200


def test_every_route_asks_at_the_gate() -> None:
    """There rate, key and body are looked at; FastAPI's own routes know none of that."""
    routes = [route for router in ROUTERS for route in router.routes]
    assert len(routes) > 50
    assert [route for route in routes if not isinstance(route, OpenRoute)] == []
    needed = {route.path: route.needs for route in routes if isinstance(route, OpenRoute)}
    # Any valid key may ask what it may.
    without = {path for path, scope in needed.items() if scope is None and path.startswith("/v1/")}
    assert without == {"/v1/me"}


@pytest.mark.parametrize("path", ["search", "search/batch", "items/delete"])
@pytest.mark.parametrize("kind", ["", "application/json; charset=utf-8"])
def test_a_body_without_a_type_is_json_everywhere(keyed: TestClient, path: str, kind: str) -> None:
    item = {"item_id": "none"}
    body = {"search": item, "search/batch": {"queries": [item]}, "items/delete": {"ids": ["none"]}}[path]
    headers = {"content-type": kind} if kind else {}
    answer = keyed.post(f"/v1/galleries/shoes/{path}", content=json.dumps(body), headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:vicinal:problem:item-not-found")
    wrong = keyed.post(f"/v1/galleries/shoes/{path}", content=b"{}", headers={"content-type": "text/plain"})
    assert wrong.status_code == 415
