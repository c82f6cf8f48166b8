"""Galleries and their versions over HTTP: made, rolled back, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    with TestClient(create_app(make_settings(data_dir))) as opened:
        yield opened


@pytest.mark.slow
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


def test_making_a_gallery_that_is_there_leaves_its_items(client: TestClient) -> None:
    assert (client.put(SHOES).status_code, client.get(SHOES).json()["n_items"]) == (200, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Shoes", "a%20b", "x" * 65])
def test_an_impossible_name_is_refused(client: TestClient, name: str) -> None:
    assert client.put(f"/v1/galleries/{name}").status_code == 422


@pytest.mark.slow
def test_a_gallery_of_another_bundle_is_not_made_again(
    data_dir: Path, make_settings: MakeSettings, tmp_path: Path, write_bundle: Callable[..., ModelBundle]
) -> None:
    other = write_bundle(tmp_path / "other", seed=1)
    client = TestClient(create_app(make_settings(data_dir, bundle=other.path)))
    assert client.put(SHOES).json()["type"].endswith("bundle-mismatch")


def test_a_deleted_gallery_is_gone(client: TestClient, data_dir: Path) -> None:
    assert client.delete(SHOES, params={"confirm": "shoes"}).status_code == 204
    assert client.get(SHOES).status_code == 404
    assert client.delete(SHOES, params={"confirm": "shoes"}).status_code == 404
    assert not (data_dir / "galleries" / "shoes").exists()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_version_can_be_activated_with_its_changes_or_as_it_was_built(
    client: TestClient, gallery: Gallery
) -> None:
    version = gallery.active_version
    client.delete(f"{SHOES}/items/plain/view 0.png")
    path = f"{SHOES}/versions/{version}/activate"
    assert client.post(path).json()["n_items"] == 59
    assert client.post(path, params={"as_built": True}).json()["n_items"] == 60
    assert client.get(f"{SHOES}/items/plain/view 0.png").status_code == 200


def test_an_unknown_version_is_not_found(client: TestClient) -> None:
    response = client.post(f"{SHOES}/versions/999/activate")
    assert (response.status_code, response.json()["type"].rpartition(":")[2]) == (404, "version-not-found")
    assert client.get("/v1/galleries/hats/versions").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [("put", "/v1/galleries/hats"), ("delete", SHOES), ("post", f"{SHOES}/versions/1/activate")],
)
def test_galleries_are_the_administrators(
    data_dir: Path, make_settings: MakeSettings, method: str, path: str
) -> None:
    keys = {"writer": ("search", "write")}
    client = TestClient(create_app(make_settings(data_dir, api_keys=keys)), headers={"X-API-Key": "writer"})
    assert getattr(client, method)(path).status_code == 403
    assert client.get(f"{SHOES}/versions").status_code == 200
