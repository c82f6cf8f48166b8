"""Galleries and their versions over HTTP: made, rolled back, removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.gallery import Gallery
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    with TestClient(create_app(make_settings(data_dir))) as opened:
        yield opened


def test_an_empty_gallery_is_made_once_and_filled(client: TestClient, view: View, encode: Encode) -> None:
    made = client.put("/v1/galleries/hats")
    assert (made.status_code, made.json()["n_items"]) == (201, 0)
    assert client.put("/v1/galleries/hats").status_code == 200
    picture = {"image": ("a.png", encode(view(1, 1)), "image/png")}
    nothing = client.post("/v1/galleries/hats/search", files=picture).json()
    assert (nothing["candidates"], nothing["n_searched"]) == ([], 0)
    assert client.post("/v1/galleries/hats/items", files=picture, data={"id": "a.png"}).status_code == 200
    answer = client.post("/v1/galleries/hats/search", files=picture).json()
    assert [one["id"] for one in answer["candidates"]] == ["a.png"]


@pytest.mark.parametrize("name", ["Shoes", "a%20b", "x" * 65])
def test_an_impossible_name_is_refused(client: TestClient, name: str) -> None:
    assert client.put(f"/v1/galleries/{name}").status_code == 422


def test_a_deleted_gallery_is_gone(client: TestClient, data_dir: Path) -> None:
    assert client.delete(SHOES, params={"confirm": "shoes"}).status_code == 204
    assert client.get(SHOES).status_code == 404
    assert client.delete(SHOES, params={"confirm": "shoes"}).status_code == 404
    assert not (data_dir / "galleries" / "shoes").exists()


@pytest.mark.parametrize(
    "params", [{}, {"confirm": ""}, {"confirm": "true"}, {"confirm": "other"}, {"yes": "shoes"}]
)
def test_a_gallery_is_deleted_only_by_who_names_it_twice(client: TestClient, params: dict[str, str]) -> None:
    answer = client.delete(SHOES, params=params)
    assert (answer.status_code, "confirm" in answer.text) == (422, True)
    assert client.get(SHOES).status_code == 200


def test_a_gallery_that_is_being_written_is_busy(client: TestClient, gallery: Gallery) -> None:
    with gallery.writing():
        response = client.delete(SHOES, params={"confirm": "shoes"})
    assert (response.status_code, response.json()["type"].rpartition(":")[2]) == (503, "gallery-busy")
    assert response.headers["retry-after"] == "2"
    assert client.get(SHOES).status_code == 200


def test_versions_are_listed_with_their_size(client: TestClient, gallery: Gallery) -> None:
    (version,) = client.get(f"{SHOES}/versions").json()["versions"]
    assert (version["version"], version["kind"], version["is_active"]) == (
        gallery.active_version,
        "index",
        True,
    )
    assert version["n_items"] == 60
    assert min(version["derived_bytes"], version["table_bytes"], version["own_table_bytes"]) > 0


def test_a_version_can_be_activated_with_its_changes_or_as_it_was_built(
    client: TestClient, gallery: Gallery
) -> None:
    version = gallery.active_version
    client.delete(f"{SHOES}/items/plain/view 0.png")
    path = f"{SHOES}/versions/{version}/activate"
    assert client.post(path).json()["n_items"] == 59
    assert client.post(path, params={"as_built": True}).json()["n_items"] == 60
    assert client.get(f"{SHOES}/items/plain/view 0.png").status_code == 200
