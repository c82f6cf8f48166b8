"""Ready embeddings over HTTP: searched by embedding and by item, and whatever needs a picture is refused."""

from __future__ import annotations

import io
import json
import math
import shutil
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
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.errors import BundleError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.request_bodies import FLOATS
from vicinal.service.http.state import state_of
from vicinal.service.settings import Settings

SHOP = "/v1/galleries/shop"
N, DIM = 60, 12
VECTORS = np.repeat(np.random.default_rng(0).normal(size=(N // 6, DIM)), 6, axis=0)
VECTORS = VECTORS + 0.2 * np.random.default_rng(1).normal(size=(N, DIM))
PROBLEM = "urn:vicinal:problem:"


@pytest.fixture(scope="module")
def both_galleries(
    base_dir: Path, make_settings: MakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Galleries in a data folder: `shoes` of images, and `shop` of ready embeddings, its table beside it."""
    folder = tmp_path_factory.mktemp("both")
    made = make_settings(Path(shutil.copytree(base_dir, folder / "data")))
    ids, labels = [f"a/{i} b" for i in range(N)], [f"label {i // 6}" for i in range(N)]
    table = pa.table({"id": ids, "label": labels, "embedding": list(VECTORS)})
    parquet.write_table(table, folder / "a.parquet")
    source, gallery = EmbeddingSource.open(folder / "a.parquet"), Gallery(made.gallery_path("shop"))
    index_items(gallery, source, ServedBundles(made).resolve(gallery, source, space="clip").embedder)
    return folder


@pytest.fixture
def settings(both_galleries: Path, make_settings: MakeSettings, tmp_path: Path) -> Settings:
    shutil.copytree(both_galleries, tmp_path, dirs_exist_ok=True)
    return make_settings(tmp_path / "data", sources_dir=tmp_path / "sources")


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    app = create_app(settings)
    # Outside of a `with` block nothing runs beside the requests.
    yield TestClient(app)
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


def test_a_picture_is_refused(client: TestClient, picture: dict[str, Any]) -> None:
    detail = refused(client.post(f"{SHOP}/search", files=picture), 422, "ready-embeddings")
    assert detail == "gallery 'shop' holds ready embeddings of 'clip': search with an embedding or an item id"


def test_an_item_has_no_image(client: TestClient) -> None:
    detail = refused(client.get(f"{SHOP}/thumbnails/a/7 b"), 404, "no-image")
    assert detail == "item 'a/7 b' of gallery 'shop' came as an embedding: it has no image"
    item = client.get(f"{SHOP}/items/a/7 b").json()
    assert (item["id"], item["label"], item["uri"]) == ("a/7 b", "label 1", "")


def sent_as_floats(client: TestClient, body: bytes, kind: str = FLOATS, **options: Any) -> Any:
    headers = {"content-type": kind}
    return client.post(f"{SHOP}/search/embedding", content=body, headers=headers, params=options)


def test_an_embedding_as_bytes_is_answered_as_one_in_json(client: TestClient) -> None:
    query = VECTORS[7].astype("<f4")
    options = {"limit": 3, "threshold": 0.9, "include_candidates": True, "filter": "label = 'label 1'"}
    floats = sent_as_floats(client, query.tobytes(), **options).json()
    written = client.post(f"{SHOP}/search", json={"embedding": query.tolist(), **options}).json()
    assert floats["matches"][0]["id"] == "a/7 b"
    assert {**floats, "milliseconds": 0} == {**written, "milliseconds": 0}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "expected 12 numbers an embedding, got 0"),
        (b"\0" * 8, "expected 12 numbers an embedding, got 2"),
        (b"\0" * 47, "an embedding is float32 numbers of 4 bytes each, got 47 bytes"),
    ],
)
def test_bytes_of_another_length_are_refused(client: TestClient, body: bytes, detail: str) -> None:
    assert refused(sent_as_floats(client, body), 422, "invalid-embedding") == detail


def sent(client: TestClient, *items: dict[str, Any], gallery: str = SHOP, **fields: Any) -> Any:
    return client.post(f"{gallery}/items", json={"items": list(items), **fields})


def near(seed: int, n: int = DIM) -> list[float]:
    return [float(value) for value in np.random.default_rng([7, seed]).normal(size=n)]


def best(client: TestClient, embedding: list[float]) -> dict[str, Any]:
    found = client.post(f"{SHOP}/search", json={"embedding": embedding}).json()
    return dict(found["candidates"][0])


def npy(array: Any, name: str = "a.npy") -> tuple[str, tuple[str, bytes, str]]:
    stream = io.BytesIO()
    np.save(stream, array)
    return "embedding", (name, stream.getvalue(), "application/octet-stream")


def test_an_added_embedding_is_found_by_the_next_search(client: TestClient) -> None:
    item = {"id": "new/ß", "embedding": near(0), "label": "boots", "metadata": {"price": 9.5}, "uri": "a.jpg"}
    body = sent(client, item, space="clip").json()
    added = {"place": 0, "id": "new/ß", "filename": None, "replaced": False}
    assert (body["added"], body["refused"], body["n_items"]) == ([added], [], N + 1)
    first = best(client, near(0))
    names = ("id", "label", "uri", "metadata")
    assert [first[name] for name in names] == ["new/ß", "boots", "a.jpg", {"price": 9.5}]
    assert first["similarity"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("embedding", "reason"),
    [
        ([1.0, 2.0], "the embedding of 'bad' cannot be used: expected 12 numbers an embedding, got 2"),
        ([], "the embedding of 'bad' cannot be used: expected 12 numbers an embedding, got 0"),
        ([0.0] * DIM, "the embedding of 'bad' is zero: it points nowhere"),
        ([math.nan] * DIM, "the embedding of 'bad' holds NaN or infinity: it points nowhere"),
        ([math.inf] + [1.0] * (DIM - 1), "the embedding of 'bad' holds NaN or infinity: it points nowhere"),
    ],
)
def test_a_bad_embedding_takes_no_other_with_it(
    client: TestClient, embedding: list[float], reason: str
) -> None:
    items = [{"id": "good", "embedding": near(0)}, {"id": "bad", "embedding": embedding}]
    # Not every client can write NaN; Python's can.
    body = client.post(f"{SHOP}/items", content=json.dumps({"items": items})).json()
    assert [one["id"] for one in body["added"]] == ["good"]
    (one,) = body["refused"]
    assert (one["place"], one["id"], one["reason"]) == (1, "bad", reason)
    assert one["type"] == PROBLEM + "invalid-embedding"
    alone = client.post(f"{SHOP}/items", content=json.dumps({"items": items[1:]}))
    assert refused(alone, 422, "invalid-embedding") == reason


def test_nothing_of_another_space_is_mixed_in(client: TestClient, picture: dict[str, Any]) -> None:
    before, item = client.get(SHOP).json(), {"id": "new", "embedding": near(0)}
    holds = "gallery 'shop' holds ready 12-d embeddings of 'clip@1', not"
    apart = "index these into a gallery of their own"
    others = {"clip@2": "ready 12-d embeddings of 'clip@2'", "siglip": "ready 12-d embeddings of 'siglip@1'"}
    for name, what in others.items():
        answer = sent(client, item, space=name)
        assert refused(answer, 409, "space-mismatch") == f"{holds} {what}: {apart}"
    answer = client.post(f"{SHOP}/items", files=picture)
    assert refused(answer, 409, "space-mismatch") == f"{holds} images: {apart}"
    shoes = sent(client, item, gallery="/v1/galleries/shoes")
    assert refused(shoes, 409, "space-mismatch") == (
        f"gallery 'shoes' holds images embedded by bundle 'tiny', not ready embeddings: {apart}"
    )
    assert client.get(SHOP).json() == before


def test_a_gallery_is_made_empty_and_filled(client: TestClient) -> None:
    made = client.put("/v1/galleries/fresh", params={"space": "clip@2", "dim": 3})
    assert (made.status_code, made.json()["n_items"], made.json()["dim"]) == (201, 0, 3)
    items = [{"id": str(i), "embedding": [i, 1.0, 2.0]} for i in range(3)]
    assert sent(client, *items, gallery="/v1/galleries/fresh", space="clip@2").json()["n_items"] == 3
    found = client.post("/v1/galleries/fresh/search", json={"embedding": [2, 1, 2]}).json()["candidates"]
    assert [one["id"] for one in found] == ["2", "1", "0"]
    again = client.put("/v1/galleries/fresh", params={"space": "clip@2", "dim": 3})
    assert (again.status_code, again.json()["n_items"]) == (200, 3)


def job(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """A job, done."""
    return wait_for_job(client, client.post(f"/v1/admin/galleries/{path}", json=fields))


def write(path: Path, n: int = 2 * N, **columns: Any) -> None:
    """A file with twice as many rows of the same labels."""
    rows = {
        "id": [f"b/{i}" for i in range(n)],
        "label": [f"label {i % N // 6}" for i in range(n)],
        "vec": list(np.concatenate([VECTORS, VECTORS + 0.1])[:n]),
    }
    parquet.write_table(pa.table({**rows, **columns}), path)


@pytest.fixture
def sources(settings: Settings) -> Path:
    assert settings.sources_dir is not None
    settings.sources_dir.mkdir(exist_ok=True)
    write(settings.sources_dir / "b.parquet")
    return settings.sources_dir


def test_a_version_is_made_of_a_file_by_a_job(client: TestClient, sources: Path) -> None:
    done = job(client, "shop/reindex", source="b.parquet", embedding_column="vec")
    assert (done["state"], done["result"]["n_items"]) == ("succeeded", 3 * N)
    assert done["result"]["source"]["n_labels"] == N // 6
    answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()}).json()
    # Beside what was there before, and shows the same.
    assert "b/7" in {one["id"] for one in answer["candidates"][:3]}
    made = job(client, "fresh/reindex", source="b.parquet", embedding_column="vec", space="siglip@2")
    assert made["state"] == "succeeded"
    assert client.get("/v1/galleries/fresh").json()["bundle_name"] == "siglip"


def test_files_behind_a_link_are_not_read(client: TestClient, sources: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "secret.npy", VECTORS)
    (sources / "a.npy").symlink_to(tmp_path / "secret.npy")
    (sources / "a.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(N)), encoding="utf-8")
    answer = client.post("/v1/admin/galleries/shop/reindex", json={"source": "a.npy"})
    assert "lies outside of sources_dir" in refused(answer, 422, "invalid-request")
    (sources / "a.npy").unlink()
    np.save(sources / "a.npy", VECTORS)
    (sources / "a.csv").rename(tmp_path / "secret.csv")
    (sources / "a.csv").symlink_to(tmp_path / "secret.csv")
    answer = client.post("/v1/admin/galleries/shop/reindex", json={"source": "a.npy"})
    assert "does not lie below sources_dir" in refused(answer, 422, "invalid-request")


@pytest.fixture
def alone(settings: Settings, make_settings: MakeSettings, tmp_path: Path) -> Settings:
    """Settings with a bundle that is not there, and a data folder with no gallery but that of embeddings."""
    shutil.rmtree(settings.gallery_path("shoes"))
    return make_settings(settings.data_dir, bundle=tmp_path / "no bundle")


def test_a_server_of_ready_embeddings_needs_no_bundle(alone: Settings) -> None:
    with TestClient(create_app(alone)) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert [ready.json()[name] for name in ("bundle", "refiner", "refine", "provider")] == [None] * 4
        answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()}).json()
        assert answer["candidates"][0]["id"] == "a/7 b"
        assert sent(client, {"id": "new", "embedding": near(0)}).status_code == 200
        assert b"vicinal_embedder_info{" not in client.get("/metrics").content
        assert refused(client.put("/v1/galleries/photos"), 500, "bundle-unusable")


def test_a_server_of_images_is_not_started_without_its_bundle(
    settings: Settings, make_settings: MakeSettings, tmp_path: Path
) -> None:
    """Negative control: it is seen at the start, and not with the first search."""
    with pytest.raises(BundleError, match="no model bundle"):
        create_app(make_settings(settings.data_dir, bundle=tmp_path / "no bundle"))
    with pytest.raises(BundleError, match="no model bundle"):
        create_app(make_settings(tmp_path / "nothing", bundle=tmp_path / "no bundle"))
