"""API keys, their scopes, and where a server without them may listen."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving
from vicinal.service.keys import Keyring, check_exposure
from vicinal.service.settings import SCOPES, Settings

GOOD, WEAK = "a-good-key", "a-weak-key"
SEARCH = "/v1/galleries/shoes/search"
BODY = {"item_id": "plain/view 0.png"}


@pytest.fixture(scope="module")
def guarded(calibrated_dir: Path, make_settings: MakeSettings) -> TestClient:
    """Client of an application with one key for searching and one for writing."""
    keys = {GOOD: ("search", "admin"), WEAK: ("write",)}
    return TestClient(create_app(make_settings(calibrated_dir, api_keys=keys)))


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


def test_every_call_refuses_who_has_no_key_or_not_its_scope(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    """Also for a gallery that is not there: a stranger does not learn which exist."""
    keys = {scope: (scope,) for scope in SCOPES}
    client = TestClient(create_app(make_settings(calibrated_dir, api_keys=keys)))
    asked = 0
    for path, calls in client.get("/openapi.json").json()["paths"].items():
        for method, operation in calls.items():
            for scope in [one for rule in operation.get("security", ()) for one in rule.get("key", ())]:
                there, absent = (
                    path.format_map(defaultdict(lambda: "x", gallery=one)) for one in ("shoes", "none")
                )
                assert client.request(method, absent).status_code == 401, (method, path)
                for key in {"search", "write"} - {scope}:
                    answer = client.request(method, there, headers={"X-API-Key": key})
                    assert answer.status_code == 403, (method, path, key)
                asked += 1
    assert asked > 40


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/", "/docs"])
def test_probes_and_pages_need_no_key(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {WEAK}"}, 403),
        ({"Authorization": f"Bearer {GOOD}"}, 200),
        ({"X-API-Key": GOOD}, 200),
    ],
)
def test_metrics_need_a_key_that_may_see_all(
    guarded: TestClient, headers: dict[str, str], status: int
) -> None:
    """They name galleries."""
    answer = guarded.get("/metrics", headers=headers)
    assert (answer.status_code, "vicinal_gallery" in answer.text) == (status, status == 200)


def test_a_key_for_some_galleries_sees_no_metrics(data_dir: Path, make_settings: MakeSettings) -> None:
    settings = make_settings(data_dir)
    _, key = Keyring(settings).store.create("shop", scopes=("search", "admin"), galleries=("shoes",))
    client = TestClient(create_app(settings))
    assert client.get("/metrics", headers={"X-API-Key": key}).status_code == 403
    assert client.get("/v1/galleries/shoes/versions", headers={"X-API-Key": key}).status_code == 200


def test_metrics_are_open_where_no_keys_are_or_the_settings_say_so(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    for changes in ({}, {"api_keys": {GOOD: ("search",)}, "open_metrics": True}):
        answer = TestClient(create_app(make_settings(calibrated_dir, **changes))).get("/metrics")
        assert (answer.status_code, 'gallery="shoes"' in answer.text) == (200, True)


@pytest.mark.slow
def test_no_answer_shows_a_key(guarded: TestClient) -> None:
    paths = ("/metrics", "/readyz", "/openapi.json", "/v1/galleries")
    answers = [guarded.get(path, headers={"X-API-Key": GOOD}).text for path in paths]
    assert not any(key in answer for key in (GOOD, WEAK) for answer in answers)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_a_server_without_keys_does_not_listen_beyond_this_machine(host: str) -> None:
    with pytest.raises(RequestError, match="without API keys the server listens on loopback only"):
        check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_a_server_without_keys_listens_on_loopback(host: str) -> None:
    check_exposure(Settings(host=host))


@pytest.mark.parametrize(
    ("proxies", "believed"), [((), False), (("10.0.0.0/8",), False), (("127.0.0.0/8",), True)]
)
def test_only_a_configured_proxy_says_who_asks(
    calibrated_dir: Path, make_settings: MakeSettings, proxies: tuple[str, ...], believed: bool
) -> None:
    """Otherwise each request would choose whose rate it counts to."""
    settings = make_settings(calibrated_dir, rate_limit="1/hour", trusted_proxies=proxies)
    with serving(settings) as url:
        answers = [
            httpx.get(f"{url}/v1/galleries", headers={"X-Forwarded-For": f"192.0.2.{n}"}).status_code
            for n in range(3)
        ]
    assert answers == ([200] * 3 if believed else [200, 429, 429])


def test_a_server_with_keys_listens_anywhere(tmp_path: Path) -> None:
    check_exposure(Settings(data_dir=tmp_path, host="0.0.0.0", api_keys={GOOD: ("search",)}))


@pytest.mark.parametrize(
    ("headers", "named"), [({}, False), ({"X-API-Key": "wrong"}, False), ({"X-API-Key": WEAK}, True)]
)
def test_galleries_are_named_to_those_with_a_key(
    guarded: TestClient, headers: dict[str, str], named: bool
) -> None:
    body = guarded.get("/readyz", headers=headers).json()
    assert (body["ready"], body["n_galleries"]) == (True, 1)
    assert [one["name"] for one in body["galleries"]] == (["shoes"] if named else [])
