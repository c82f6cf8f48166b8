"""Keys of the store over HTTP: they count at once, and one of a gallery learns nothing of another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.records import new_job
from vicinal.service.keys import KeyStore
from vicinal.service.settings import SCOPES, Settings

SEARCH = {"item_id": "plain/view 0.png"}


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir, run_jobs=False)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings)) as opened:
        opened.put("/v1/galleries/other", params={"space": "clip", "dim": 3})
        yield opened


@pytest.fixture
def store(settings: Settings) -> KeyStore:
    return KeyStore(settings.data_dir)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def status(client: TestClient, method: str, path: str, key: str, **body: Any) -> int:
    return client.request(method, path, headers=bearer(key), **body).status_code


def test_keys_count_in_a_running_server(client: TestClient, store: KeyStore) -> None:
    address = "/v1/galleries/shoes/search"
    assert client.post(address, json=SEARCH).status_code == 200
    _, key = store.create("shop", ["search"])
    assert client.post(address, json=SEARCH).status_code == 401
    assert status(client, "POST", address, key, json=SEARCH) == 200
    assert status(client, "DELETE", "/v1/galleries/shoes/items/plain/view 0.png", key) == 403
    store.revoke("shop")
    assert status(client, "POST", address, key, json=SEARCH) == 401
    assert client.post(address, json=SEARCH).status_code == 401


def test_damaged_keys_refuse_everybody_with_the_way_back(
    client: TestClient, store: KeyStore, settings: Settings
) -> None:
    _, key = store.create("shop", ["search"])
    (settings.data_dir / "server.db").write_bytes(b"no database at all " * 1000)
    answer = client.get("/v1/galleries", headers=bearer(key))
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:vicinal:problem:keys-damaged")


@pytest.mark.slow
def test_every_route_of_another_gallery_is_not_found_with_a_key_of_one(
    client: TestClient, store: KeyStore
) -> None:
    """The answers for a gallery that is there and for one that is not are the same."""
    _, key = store.create("mine", SCOPES, galleries=["shoes"])
    paths = client.get("/openapi.json").json()["paths"]
    n_tried = 0
    for path, operations in paths.items():
        if "{gallery}" in path:
            for method in operations:
                answers = []
                for name in ("other", "absent"):
                    own = path.replace("{gallery}", name).replace("{version}", "1")
                    # With an id of its own each would be another one.
                    answer = client.request(method, own, headers={**bearer(key), "X-Request-ID": "same"})
                    answers.append((answer.status_code, answer.text.replace(name, "NAME")))
                assert answers[0] == answers[1], (method, path)
                assert answers[0][0] == 404, (method, path)
                n_tried += 1
    assert n_tried > 30
    assert status(client, "GET", "/v1/galleries/shoes", key) == 200


def test_lists_show_what_the_key_is_for(client: TestClient, store: KeyStore, settings: Settings) -> None:
    set_alias(settings.galleries_path, "live", "shoes")
    set_alias(settings.galleries_path, "hidden", "other")
    _, mine = store.create("mine", ["search"], galleries=["live"])
    _, everything = store.create("all", ["search"])

    def listed(path: str, member: str, name: str, key: str) -> list[str]:
        return [one[name] for one in client.get(path, headers=bearer(key)).json()[member]]

    assert listed("/v1/galleries", "galleries", "name", mine) == ["shoes"]
    assert listed("/v1/galleries", "galleries", "name", everything) == ["other", "shoes"]
    assert listed("/v1/aliases", "aliases", "alias", mine) == ["live"]
    assert listed("/v1/aliases", "aliases", "alias", everything) == ["hidden", "live"]
    assert status(client, "POST", "/v1/galleries/live/search", mine, json=SEARCH) == 200
    assert status(client, "POST", "/v1/galleries/hidden/search", mine, json=SEARCH) == 404


def test_jobs_of_another_gallery_are_not_found(client: TestClient, store: KeyStore) -> None:
    _, key = store.create("mine", SCOPES, galleries=["shoes"])
    jobs = state_of(client.app).jobs
    mine, other = (jobs.create(new_job("reindex", name, {})) for name in ("shoes", "other"))
    assert [one["id"] for one in client.get("/v1/jobs", headers=bearer(key)).json()["jobs"]] == [mine.id]
    assert status(client, "GET", f"/v1/jobs/{mine.id}", key) == 200
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        assert status(client, method, f"/v1/jobs/{other.id}{path}", key) == 404
    assert jobs.get(other.id).state == "queued"


@pytest.mark.parametrize(
    ("open_to", "status"), [({"cors_origins": ["*"]}, 401), ({"cors_origins": ["https://a.example"]}, 200)]
)
def test_where_pages_of_any_site_call_keys_are_asked_for_although_they_are_off(
    settings: Settings, store: KeyStore, open_to: dict[str, Any], status: int
) -> None:
    """A server does not start so; one that runs does not become so."""
    store.create("all", ["search"])
    with TestClient(create_app(settings.model_copy(update=open_to))) as client:
        store.turn_off()
        assert client.get("/v1/galleries", headers={"origin": "https://b.example"}).status_code == status
