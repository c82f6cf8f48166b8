"""Pictures in full size, and kept searches that are searched for again by their ids."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.models.embedder import Embedder
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.app import create_app

SEARCH = "/v1/galleries/shoes/search"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with two photos, the first turned by its EXIF."""
    folder = tmp_path / "photos"
    folder.mkdir()
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Camera of somebody"
    wide = Image.effect_noise((900, 600), 90).convert("RGB")
    wide.save(folder / "turned.jpg", exif=exif)
    Image.effect_noise((640, 640), 60).convert("RGB").save(folder / "other.png")
    return folder


@pytest.fixture
def client(photos: Path, tmp_path: Path, embedder: Embedder, make_settings: MakeSettings) -> TestClient:
    settings = make_settings(tmp_path / "data", max_image_bytes=2_000_000)
    gallery = Gallery(settings.gallery_path("photos"))
    index_items(gallery, read_source(photos), embedder, source=source_name(photos), workers=1)
    return TestClient(create_app(settings))


def image(client: TestClient, item_id: str) -> Any:
    return client.get("/v1/galleries/photos/image", params={"id": item_id})


def test_an_image_comes_upright_in_full_size_without_what_its_file_says(client: TestClient) -> None:
    answer = image(client, "turned.jpg")
    assert answer.status_code == 200, answer.text
    shown = Image.open(io.BytesIO(answer.content))
    assert (answer.headers["content-type"], shown.format, shown.size) == ("image/jpeg", "JPEG", (600, 900))
    assert not shown.getexif()
    assert image(client, "other.png").headers["content-type"] == "image/jpeg"


def _changed(path: Path) -> None:
    Image.new("RGB", (20, 20), "red").save(path)


def _gone(path: Path) -> None:
    path.unlink()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [_changed, _gone, _pipe, _folder])
def test_what_is_not_the_file_that_was_indexed_is_not_shown(
    client: TestClient, photos: Path, change: Callable[[Path], None]
) -> None:
    change(photos / "other.png")
    answer = image(client, "other.png")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:vicinal:problem:no-image")
    assert "only the small picture is kept" in answer.json()["detail"]


def test_an_uploaded_photo_has_its_thumbnail_alone(client: TestClient, photos: Path) -> None:
    """Whatever it says that its name is."""
    path = photos / "other.png"
    sent = {"image": (str(path), path.read_bytes(), "image/png")}
    added = client.post("/v1/galleries/photos/items", files=sent, data={"id": "mine"}).json()
    assert [one["id"] for one in added["added"]] == ["mine"]
    assert image(client, "mine").status_code == 404
    assert image(client, "none").json()["type"] == "urn:vicinal:problem:item-not-found"


@pytest.fixture
def kept_data(calibrated_base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(calibrated_base, tmp_path / "served"))


@pytest.fixture
def keeping(kept_data: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    """Client of an application that keeps searches."""
    with TestClient(create_app(make_settings(kept_data, keep_searches=100))) as opened:
        yield opened


def told(answer: dict[str, Any]) -> list[Any]:
    return [answer["verdict"], [one["id"] for one in answer["matches"] + answer["candidates"]]]


def test_a_kept_search_is_searched_for_again_and_not_kept_anew(
    keeping: TestClient, kept_data: Path, view: View, encode: Encode
) -> None:
    sent = {"image": ("a.png", encode(view(2, 9).resize((900, 900))), "image/png")}
    first = keeping.post(SEARCH, files=sent, data={"include_candidates": "true"}).json()
    body = {"search_id": first["search_id"], "include_candidates": True}
    again = keeping.post(SEARCH, json=body).json()
    assert again["search_id"] == first["search_id"]
    assert told(again) == told(first)
    narrow = keeping.post(SEARCH, json={**body, "filter": "label = 'plain'"}).json()
    assert {one["label"] for one in narrow["matches"] + narrow["candidates"]} == {"plain"}
    picture = keeping.get(f"/v1/galleries/shoes/kept/{first['search_id']}/picture")
    assert max(Image.open(io.BytesIO(picture.content)).size) == 512
    assert picture.headers["cache-control"] == "no-store"
    assert SearchStore(kept_data / "galleries" / "shoes").n_kept == 1
    said = {"search_id": first["search_id"], "label": "größe 42"}
    assert keeping.post("/v1/galleries/shoes/answers", json=said).status_code == 200


def test_a_search_is_for_one_thing_alone(keeping: TestClient) -> None:
    answer = keeping.post(SEARCH, json={"search_id": "0a", "item_id": "plain/view 0.png"})
    assert answer.status_code == 422
    assert "exactly one of image_base64, embedding, item_id and search_id" in answer.json()["detail"]
