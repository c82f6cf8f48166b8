"""What a key may do is told by `/v1/me`, and is what calls then let it do."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app
from vicinal.service.keys import KeyStore
from vicinal.service.settings import SCOPES

# A call of each scope that changes nothing.
CALLS = {
    "search": ("GET", "/v1/galleries/shoes"),
    "write": ("DELETE", "/v1/galleries/shoes/item?id=none"),
    "admin": ("GET", "/v1/jobs"),
}


@pytest.fixture
def keys(data_dir: Path, make_settings: MakeSettings) -> tuple[TestClient, KeyStore]:
    settings = make_settings(data_dir, run_jobs=False)
    return TestClient(create_app(settings)), KeyStore(settings.data_dir)


def test_without_keys_everybody_may_do_all(client: TestClient) -> None:
    rights = client.get("/v1/me").json()
    assert rights == {"asks_for_keys": False, "name": None, "scopes": list(SCOPES), "galleries": None}


@pytest.mark.parametrize(
    ("scopes", "may"),
    [
        (("search",), ["search"]),
        (("search", "write"), ["search", "write"]),
        # Who runs galleries may look at them, and not change their items.
        (("admin",), ["search", "admin"]),
        (("write",), ["write"]),
    ],
)
def test_a_key_is_told_what_calls_let_it_do(
    keys: tuple[TestClient, KeyStore], scopes: tuple[str, ...], may: list[str]
) -> None:
    client, store = keys
    record, key = store.create("shop", scopes)  # type: ignore[arg-type]
    headers = {"X-API-Key": key}
    rights = client.get("/v1/me", headers=headers).json()
    assert rights == {
        "asks_for_keys": True,
        "name": f"shop {record.id}",
        "scopes": may,
        "galleries": None,
    }
    passed = [
        scope
        for scope, (method, path) in CALLS.items()
        if client.request(method, path, headers=headers).status_code != 403
    ]
    assert passed == may


def test_nobody_else_is_told_anything(keys: tuple[TestClient, KeyStore]) -> None:
    client, store = keys
    _, key = store.create("shop", ("search",))
    assert client.get("/v1/me").status_code == 401
    assert client.get("/v1/me", headers={"X-API-Key": f"{key}x"}).status_code == 401
    store.revoke("shop")
    assert client.get("/v1/me", headers={"X-API-Key": key}).status_code == 401
