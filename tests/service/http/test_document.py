"""What the OpenAPI document says of every call: problems, keys, names of operations, examples."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from vicinal.service.http.app import _EXAMPLES, ROUTERS
from vicinal.service.http.gate import OpenRoute
from vicinal.service.settings import Scope

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Operations by `METHOD /path`."""
    paths = document["paths"].items()
    return {f"{method.upper()} {path}": one for path, calls in paths for method, one in calls.items()}


def test_every_problem_has_its_media_type(operations: dict[str, dict[str, Any]]) -> None:
    for name, operation in operations.items():
        refused = {status: one for status, one in operation["responses"].items() if status[0] in "45"}
        kinds = {status: list(one["content"]) for status, one in refused.items()}
        expected = ["application/json"] if name == "GET /readyz" else [PROBLEM]
        assert kinds.pop("503", [PROBLEM]) in (expected, [PROBLEM])
        assert set(map(tuple, kinds.values())) == {(PROBLEM,)}, name


def test_calls_of_the_api_say_what_may_go_wrong(operations: dict[str, dict[str, Any]]) -> None:
    usual = {"4XX", "401", "403", "421", "429", "500", "503"}
    for name, operation in operations.items():
        method, path = name.split()
        if path.startswith("/v1/"):
            assert usual <= set(operation["responses"]), name
            assert ("507" in operation["responses"]) == (method != "GET")
            assert ("413" in operation["responses"]) == ("requestBody" in operation)


def test_each_call_names_the_scope_that_it_needs(operations: dict[str, dict[str, Any]]) -> None:
    scopes = {name: scope for scope in get_args(Scope) for name in _names(scope)} | {"metrics": "admin"}
    for name, operation in operations.items():
        scope = scopes.get(operation["operationId"])
        said = [{"bearer": [scope]}, {"key": [scope]}] if scope else None
        if operation["operationId"] == "get_rights":
            # Any valid key may ask what it may.
            said = [{"bearer": []}, {"key": []}]
        assert operation.get("security") == said, name
    assert operations["POST /v1/galleries/{gallery}/search"]["security"][0] == {"bearer": ["search"]}
    assert operations["DELETE /v1/galleries/{gallery}"]["security"][0] == {"bearer": ["admin"]}


def _names(scope: Scope) -> list[str]:
    return [
        route.name
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, OpenRoute) and route.needs == scope
    ]


def test_operations_have_short_names_of_their_own(operations: dict[str, dict[str, Any]]) -> None:
    names = [one["operationId"] for one in operations.values()]
    assert len(set(names)) == len(names)
    assert {"search", "search_batch", "add_items", "list_galleries", "readyz"} <= set(names)


def test_examples_are_of_the_form_that_is_described(client: TestClient) -> None:
    """Each is understood: what is refused is that there is no such gallery, item or source."""
    paths = client.get("/openapi.json").json()["paths"]
    tried = 0
    for path, calls in paths.items():
        for method, operation in calls.items():
            example = _EXAMPLES.get(operation["operationId"])
            if example is not None:
                address = path.format(gallery="nothing", alias="shop")
                params = {"id": "a"} if path.endswith("/item") else {}
                answer = client.request(method, address, params=params, json=example)
                refusals = ("gallery-not-found", "VICINAL_SOURCES_DIR")
                assert any(one in answer.text for one in refusals), operation["operationId"]
                tried += 1
    assert tried == len(_EXAMPLES)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/galleries/shoes/items/a/b", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/v1/galleries/shoes/items", "GET, HEAD, POST"),
        ("POST", "/v1/galleries/shoes", "DELETE, GET, HEAD, PUT"),
        ("DELETE", "/v1/galleries/shoes/search", "POST"),
        ("POST", "/livez", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_there_names_all_that_are(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("comparisons/any/activate", {"variant": False}),
        ("labelling", {"restart": 0}),
        ("labelling/answers", {"number": True, "same": None}),
        ("labelling/answers", {"number": 0, "same": 1}),
    ],
)
def test_what_decides_is_of_the_type_that_is_described(
    client: TestClient, path: str, body: dict[str, object]
) -> None:
    """`false` is no number of a variant, although it could be taken for one."""
    answer = client.post(f"/v1/admin/galleries/shoes/{path}", json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:vicinal:problem:invalid-request")
    by_hand = client.put("/v1/admin/galleries/shoes/threshold", json={"threshold": False})
    assert by_hand.status_code == 422
