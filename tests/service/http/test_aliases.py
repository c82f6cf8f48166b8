"""Aliases over HTTP: clients keep a name while the gallery behind it is exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery
from vicinal.service.http.app import create_app


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    """Galleries `shoes` and `boots`, of which the second has one item less."""
    boots = copy_gallery(Gallery(data_dir / "galleries" / "shoes"), "boots")
    remove_items(GalleryReader(boots), [GalleryReader(boots).view().page(None, 1)[0][1]["id"]])
    with TestClient(create_app(make_settings(data_dir))) as opened:
        yield opened


def n_items(client: TestClient, name: str) -> int:
    answer = client.get(f"/v1/galleries/{name}")
    assert answer.status_code == 200, answer.text
    return int(answer.json()["n_items"])


def test_a_client_searches_another_gallery_at_once(client: TestClient) -> None:
    query = {"item_id": "0/1.png", "limit": 1}
    first = client.get("/v1/galleries/shoes/items").json()["items"][5]["id"]
    query["item_id"] = first
    assert client.post("/v1/galleries/shop/search", json=query).status_code == 404
    for target in ("shoes", "boots", "shoes"):
        put = client.put("/v1/aliases/shop", json={"gallery": target})
        assert (put.status_code, put.json()) == (200, {"alias": "shop", "gallery": target})
        answer = client.post("/v1/galleries/shop/search", json=query)
        assert (answer.status_code, answer.json()["gallery"]) == (200, target)
        assert n_items(client, "shop") == n_items(client, target)
    assert client.get("/v1/aliases").json() == {"aliases": [{"alias": "shop", "gallery": "shoes"}]}
    assert client.get("/v1/galleries/shop").json()["aliases"] == ["shop"]
    assert [one["name"] for one in client.get("/v1/galleries").json()["galleries"]] == ["boots", "shoes"]


@pytest.mark.parametrize(
    ("alias", "gallery", "status", "kind"),
    [
        ("boots", "shoes", 409, "gallery-exists"),
        ("shop", "hats", 404, "gallery-not-found"),
        ("Shop", "shoes", 422, "invalid-request"),
        ("shop", "../shoes", 422, "invalid-request"),
    ],
)
def test_what_is_no_alias_is_refused(
    client: TestClient, alias: str, gallery: str, status: int, kind: str
) -> None:
    answer = client.put(f"/v1/aliases/{alias}", json={"gallery": gallery})
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[-1]) == (status, kind)
    assert client.get("/v1/aliases").json() == {"aliases": []}


def test_a_gallery_that_is_renamed_while_it_is_served(client: TestClient, data_dir: Path) -> None:
    client.put("/v1/aliases/shop", json={"gallery": "shoes"})
    assert n_items(client, "shop") == n_items(client, "shoes") == 60
    rename_gallery(Gallery(data_dir / "galleries" / "shoes"), "sandals")
    assert client.get("/v1/galleries/shoes").status_code == 404
    assert n_items(client, "shop") == n_items(client, "sandals") == 60
