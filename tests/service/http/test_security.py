"""API keys, their scopes, and where a server without them may listen."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.security import check_exposure
from vicinal.service.settings import Settings

GOOD, WEAK = "a-good-key", "a-weak-key"
SEARCH = "/v1/galleries/shoes/search"
BODY = {"item_id": "plain/view 0.png"}


@pytest.fixture(scope="module")
def guarded(calibrated_dir: Path, make_settings: MakeSettings) -> TestClient:
    """Client of an application with one key for searching and one for writing."""
    keys = {GOOD: ("search", "admin"), WEAK: ("write",)}
    return TestClient(create_app(make_settings(calibrated_dir, api_keys=keys)))


def test_without_keys_everyone_may_search(client: TestClient) -> None:
    assert client.post(SEARCH, json=BODY).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {GOOD}"},
        {"Authorization": f"bearer {GOOD}"},
        {"Authorization": f"Bearer   {GOOD} "},
        {"X-API-Key": GOOD},
    ],
)
def test_a_key_with_the_scope_may_search(guarded: TestClient, headers: dict[str, str]) -> None:
    assert guarded.post(SEARCH, json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {GOOD}x"},
        {"Authorization": f"Bearer {GOOD[:-1]}"},
        {"Authorization": f"Basic {GOOD}"},
        {"Authorization": GOOD},
        {"X-API-Key": ""},
        {"X-API-Key": GOOD.upper()},
        {"X-API-Key": "größe".encode()},
        # A wrong bearer token is not made good by another header.
        {"Authorization": "Bearer wrong", "X-API-Key": GOOD},
    ],
)
def test_without_a_valid_key_nobody_may_search(guarded: TestClient, headers: dict[str, str]) -> None:
    response = guarded.post(SEARCH, json=BODY, headers=headers)
    assert (response.status_code, response.json()["type"]) == (401, "urn:vicinal:problem:unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/problem+json"


def test_a_key_without_the_scope_is_told_which_it_lacks(guarded: TestClient) -> None:
    response = guarded.post(SEARCH, json=BODY, headers={"X-API-Key": WEAK})
    assert (response.status_code, response.json()["type"]) == (403, "urn:vicinal:problem:forbidden")
    assert "'search'" in response.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/galleries",
        "/v1/galleries/shoes",
        "/v1/galleries/boots",
        "/v1/galleries/shoes/items",
        "/v1/galleries/shoes/items/plain/view 0.png",
        "/v1/galleries/shoes/thumbnails/plain/view 0.png",
    ],
)
def test_every_way_to_read_a_gallery_needs_a_key(guarded: TestClient, path: str) -> None:
    """Also the name of one that is not there: a stranger does not learn which exist."""
    assert guarded.get(path).status_code == 401


def test_a_batch_needs_a_key(guarded: TestClient) -> None:
    response = guarded.post(f"{SEARCH}/batch", json={"queries": [BODY]})
    assert response.status_code == 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/", "/docs"])
def test_probes_and_pages_need_no_key(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_no_answer_shows_a_key(guarded: TestClient) -> None:
    answers = [guarded.get(path).text for path in ("/metrics", "/readyz", "/openapi.json", "/v1/galleries")]
    assert not any(key in answer for key in (GOOD, WEAK) for answer in answers)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_a_server_without_keys_does_not_listen_beyond_this_machine(host: str) -> None:
    with pytest.raises(RequestError, match="without API keys the server listens on loopback only"):
        check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_a_server_without_keys_listens_on_loopback(host: str) -> None:
    check_exposure(Settings(host=host))


def test_a_server_with_keys_listens_anywhere() -> None:
    check_exposure(Settings(host="0.0.0.0", api_keys={GOOD: ("search",)}))
