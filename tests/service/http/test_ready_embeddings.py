"""Ready embeddings over HTTP: searched by embedding and by item, and whatever needs a picture is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet

from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_for_job
from vicinal.indexer.embedding_sources import EmbeddingSource
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs import JobWorker
from vicinal.service.settings import Settings

SHOP = "/v1/galleries/shop"
N, DIM = 60, 12
VECTORS = np.repeat(np.random.default_rng(0).normal(size=(N // 6, DIM)), 6, axis=0)
VECTORS = VECTORS + 0.2 * np.random.default_rng(1).normal(size=(N, DIM))
PROBLEM = "urn:vicinal:problem:"


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings, tmp_path: Path) -> Settings:
    """A data folder with a gallery of images, `shoes`, and one of ready embeddings, `shop`."""
    made = make_settings(data_dir)
    ids, labels = [f"a/{i} b" for i in range(N)], [f"label {i // 6}" for i in range(N)]
    table = pa.table({"id": ids, "label": labels, "embedding": list(VECTORS)})
    parquet.write_table(table, tmp_path / "a.parquet")
    source, gallery = EmbeddingSource.open(tmp_path / "a.parquet"), Gallery(made.gallery_path("shop"))
    index_items(gallery, source, ServedBundles(made).space(gallery, "clip", DIM).embedder)
    return made


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    app = create_app(settings)
    with TestClient(app) as opened:
        yield opened
    state_of(app).galleries.maintenance.wait()


@pytest.fixture
def picture(view: View, encode: Encode) -> dict[str, Any]:
    return {"image": ("a.png", encode(view(0, 0)), "image/png")}


def refused(response: Any, status: int, kind: str) -> str:
    body = response.json()
    assert (response.status_code, body["type"]) == (status, PROBLEM + kind)
    return str(body["detail"])


def test_both_galleries_are_searched_by_one_server(client: TestClient, picture: dict[str, Any]) -> None:
    answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()}).json()
    assert answer["candidates"][0]["id"] == "a/7 b"
    assert client.post("/v1/galleries/shoes/search", files=picture).status_code == 200
    states = {one["name"]: one for one in client.get("/readyz").json()["galleries"]}
    assert (states["shop"]["problem"], states["shoes"]["problem"]) == (None, None)
    assert states["shop"]["bundle"] != states["shoes"]["bundle"]


def test_an_item_finds_its_label(client: TestClient) -> None:
    answer = client.post(f"{SHOP}/search", json={"item_id": "a/7 b", "limit": 5}).json()
    assert {one["label"] for one in answer["candidates"]} == {"label 1"}


def test_a_picture_is_refused(client: TestClient, picture: dict[str, Any]) -> None:
    detail = refused(client.post(f"{SHOP}/search", files=picture), 422, "ready-embeddings")
    assert detail == "gallery 'shop' holds ready embeddings of 'clip': search with an embedding or an item id"
    added = client.post(f"{SHOP}/items", files=picture)
    assert refused(added, 422, "ready-embeddings") == detail


def test_an_item_has_no_image(client: TestClient) -> None:
    detail = refused(client.get(f"{SHOP}/items/a/7 b/image"), 404, "no-image")
    assert detail == "item 'a/7 b' of gallery 'shop' came as an embedding: it has no image"
    item = client.get(f"{SHOP}/items/a/7 b").json()
    assert (item["id"], item["label"], item["uri"]) == ("a/7 b", "label 1", "")


def test_an_embedding_of_another_length_is_refused(client: TestClient) -> None:
    answer = client.post(f"{SHOP}/search", json={"embedding": [1.0, 2.0]})
    assert refused(answer, 422, "invalid-embedding") == "expected 12 numbers an embedding, got 2"


def test_items_are_patched_and_removed(client: TestClient) -> None:
    assert client.patch(f"{SHOP}/items/a/7 b", json={"label": "new"}).json()["label"] == "new"
    assert client.delete(f"{SHOP}/items/a/8 b").status_code == 204
    found = client.post(f"{SHOP}/search", json={"embedding": VECTORS[8].tolist(), "limit": 60}).json()
    labels = {one["id"]: one["label"] for one in found["candidates"]}
    assert ("a/8 b" in labels, labels["a/7 b"]) == (False, "new")


def test_the_bundle_of_a_gallery_is_found_anew_after_it_was_deleted(
    client: TestClient, settings: Settings, tmp_path: Path
) -> None:
    query = {"embedding": VECTORS[7].tolist()}
    assert client.post(f"{SHOP}/search", json=query).status_code == 200
    assert client.delete(SHOP).status_code == 204
    gallery = Gallery(settings.gallery_path("shop"))
    source = EmbeddingSource.open(tmp_path / "a.parquet")
    index_items(gallery, source, ServedBundles(settings).space(gallery, "siglip", DIM).embedder)
    assert client.post(f"{SHOP}/search", json=query).json()["candidates"][0]["id"] == "a/7 b"


def test_a_damaged_space_is_told_and_takes_no_other_gallery_with_it(
    client: TestClient, settings: Settings, picture: dict[str, Any]
) -> None:
    (settings.gallery_path("shop") / "space" / "bundle.json").write_text("{}", encoding="utf-8")
    answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()})
    assert refused(answer, 409, "bundle-mismatch").startswith("gallery 'shop' was embedded with bundle")
    assert client.post("/v1/galleries/shoes/search", files=picture).status_code == 200


@pytest.mark.slow
def test_an_index_of_the_own_embeddings_is_made_by_a_job(client: TestClient) -> None:
    state = state_of(client.app)
    with JobWorker(state.jobs, state.kinds.by_name(), heartbeat_seconds=0.5):
        accepted = client.post("/v1/admin/galleries/shop/reindex", json={"index": "IVF2,Flat"})
        assert wait_for_job(client, accepted)["state"] == "succeeded"
    assert client.get(SHOP).json()["index"] == "IVF2,Flat"
    answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()}).json()
    assert answer["candidates"][0]["id"] == "a/7 b"
