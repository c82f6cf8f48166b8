"""Ready embeddings over HTTP: searched by embedding and by item, and whatever needs a picture is refused."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
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
from vicinal.service.jobs.worker import JobWorker
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


def test_an_item_finds_its_label(client: TestClient) -> None:
    answer = client.post(f"{SHOP}/search", json={"item_id": "a/7 b", "limit": 5}).json()
    assert {one["label"] for one in answer["candidates"]} == {"label 1"}


def test_a_picture_is_refused(client: TestClient, picture: dict[str, Any]) -> None:
    detail = refused(client.post(f"{SHOP}/search", files=picture), 422, "ready-embeddings")
    assert detail == "gallery 'shop' holds ready embeddings of 'clip': search with an embedding or an item id"


def test_an_item_has_no_image(client: TestClient) -> None:
    detail = refused(client.get(f"{SHOP}/thumbnails/a/7 b"), 404, "no-image")
    assert detail == "item 'a/7 b' of gallery 'shop' came as an embedding: it has no image"
    item = client.get(f"{SHOP}/items/a/7 b").json()
    assert (item["id"], item["label"], item["uri"]) == ("a/7 b", "label 1", "")


def test_an_embedding_of_another_length_is_refused(client: TestClient) -> None:
    answer = client.post(f"{SHOP}/search", json={"embedding": [1.0, 2.0]})
    assert refused(answer, 422, "invalid-embedding") == "expected 12 numbers an embedding, got 2"


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


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_bytes_that_are_no_direction_are_refused_as_in_json(client: TestClient, value: float) -> None:
    query = np.full(12, value, "<f4")
    written = client.post(
        f"{SHOP}/search",
        content=json.dumps({"embedding": query.tolist()}),
        headers={"content-type": "application/json"},
    )
    told = refused(sent_as_floats(client, query.tobytes()), 422, "invalid-embedding")
    assert told == refused(written, 422, "invalid-embedding")


def test_bytes_are_taken_as_what_they_are_alone(client: TestClient) -> None:
    body = VECTORS[7].astype("<f4").tobytes()
    refused(sent_as_floats(client, body, "application/json"), 415, "unsupported-format")
    refused(sent_as_floats(client, body, limit="many"), 422, "invalid-request")
    assert "'limt' is no parameter" in refused(sent_as_floats(client, body, limt=1), 422, "invalid-request")


def test_bytes_beyond_the_largest_body_are_refused(settings: Settings) -> None:
    small = TestClient(create_app(settings.model_copy(update={"max_request_bytes": 1000})))
    refused(sent_as_floats(small, b"\0" * 1001), 413, "body-too-large")


def test_bytes_that_look_like_brackets_are_no_values_of_json(client: TestClient) -> None:
    detail = refused(sent_as_floats(client, b"[" * 1_000_000), 422, "invalid-embedding")
    assert detail == "expected 12 numbers an embedding, got 250000"


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
    assert client.delete(SHOP, params={"confirm": "shop"}).status_code == 204
    gallery = Gallery(settings.gallery_path("shop"))
    source = EmbeddingSource.open(tmp_path / "a.parquet")
    index_items(gallery, source, ServedBundles(settings).resolve(gallery, source, space="siglip").embedder)
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
    with JobWorker(state.jobs, state.kinds, heartbeat_seconds=0.5):
        accepted = client.post("/v1/admin/galleries/shop/reindex", json={"index": "IVF2,Flat"})
        assert wait_for_job(client, accepted)["state"] == "succeeded"
    assert client.get(SHOP).json()["index"] == "IVF2,Flat"
    answer = client.post(f"{SHOP}/search", json={"embedding": VECTORS[7].tolist()}).json()
    assert answer["candidates"][0]["id"] == "a/7 b"


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


def test_an_array_is_added_with_fields_for_each_row(client: TestClient) -> None:
    rows = np.array([near(0), near(1)], np.float32)
    fields = {"id": ["x", "y"], "label": "boots", "metadata": ['{"n": 1}', "{}"], "space": "clip@1"}
    files = [npy(rows), npy(np.array(near(2)), "one.npy")]
    refused(client.post(f"{SHOP}/items", files=files, data=fields), 422, "invalid-request")
    body = client.post(f"{SHOP}/items", files=files, data={**fields, "id": ["x", "y", "z"], "metadata": ""})
    assert [one["id"] for one in body.json()["added"]] == ["x", "y", "z"]
    assert [best(client, near(seed))["id"] for seed in range(3)] == ["x", "y", "z"]


@pytest.mark.slow
def test_one_by_one_and_together_give_the_same_answers(client: TestClient, settings: Settings) -> None:
    items = [{"id": f"new {i}", "embedding": near(i // 2)} for i in range(4)]
    for item in items:
        sent(client, item)
    query = {"embedding": near(0), "limit": 10}
    apart = client.post(f"{SHOP}/search", json=query).json()["candidates"]
    client.post(f"{SHOP}/items/delete", json={"ids": [one["id"] for one in items]})
    assert client.post(f"{SHOP}/search", json=query).json()["candidates"] != apart
    sent(client, *items)
    assert client.post(f"{SHOP}/search", json=query).json()["candidates"] == apart


@pytest.mark.slow
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


def test_a_taken_id_is_a_conflict_of_its_own(client: TestClient) -> None:
    taken, new = {"id": "a/7 b", "embedding": near(0)}, {"id": "new", "embedding": near(1)}
    detail = refused(sent(client, taken), 409, "item-exists")
    assert detail.startswith("in gallery 'shop' another embedding has the id 'a/7 b'; send 'replace' or")
    body = sent(client, new, taken).json()
    assert ([one["id"] for one in body["added"]], [one["id"] for one in body["refused"]]) == (
        ["new"],
        ["a/7 b"],
    )
    assert body["refused"][0]["type"] == PROBLEM + "item-exists"
    both = refused(sent(client, taken, {**taken, "id": "a/8 b"}), 422, "nothing-added")
    assert both == "none of 2 embeddings was added"
    assert [one["id"] for one in sent(client, taken, on_conflict="skip").json()["skipped"]] == ["a/7 b"]
    assert best(client, near(0))["id"] != "a/7 b"
    assert sent(client, taken, on_conflict="replace").json()["added"][0]["replaced"]
    assert best(client, near(0))["id"] == "a/7 b"
    assert client.get(SHOP).json()["n_items"] == N + 1


def test_a_request_can_be_sent_again(client: TestClient) -> None:
    item = {"id": "a/7 b", "embedding": [3.0 * value for value in VECTORS[7]]}
    body = sent(client, item, {"id": "new", "embedding": near(0)}).json()
    assert [one["id"] for one in body["unchanged"]] == ["a/7 b"]
    again = sent(client, item, {"id": "new", "embedding": near(0)}).json()
    assert ([one["id"] for one in again["unchanged"]], again["added"]) == (["a/7 b", "new"], [])
    assert again["revision"] == body["revision"]


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"items": []}, "items"),
        ({"items": [{"embedding": near(0)}]}, "id"),
        ({"items": [{"id": "", "embedding": near(0)}]}, "id"),
        ({"items": [{"id": "x" * 1025, "embedding": near(0)}]}, "id"),
        ({"items": [{"id": "x", "embedding": "words"}]}, "embedding"),
        ({"items": [{"id": "x", "embedding": near(0), "metadata": {"a": math.nan}}]}, "metadata"),
        ({"items": [{"id": "x", "embedding": near(0), "vector": near(0)}]}, "vector"),
        ({"items": [{"id": "x", "embedding": near(0)}], "space": "no space"}, "space"),
        ({"items": [{"id": "x", "embedding": near(0)}], "on_conflict": "overwrite"}, "on_conflict"),
    ],
)
def test_wrong_fields_are_named(client: TestClient, body: dict[str, Any], where: str) -> None:
    answer = client.post(f"{SHOP}/items", content=json.dumps(body))
    assert answer.status_code == 422
    assert where in json.dumps(answer.json()["errors"])
    assert client.get(SHOP).json()["n_items"] == N


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (("embedding", ("a.npy", b"words", "")), "'a.npy' is no .npy file of embeddings"),
        (("embedding", ("a.npy", b"", "")), "'a.npy' is no .npy file of embeddings"),
        (npy(np.array(["x"])), "send numbers of the shape (d) or (n, d)"),
        (npy(np.ones((1, 1, DIM))), "send numbers of the shape (d) or (n, d)"),
        (npy(np.ones((2, DIM))), "1 fields 'id' for 2 embeddings: send one each"),
    ],
)
def test_a_file_that_is_no_array_is_refused(client: TestClient, file: Any, reason: str) -> None:
    answer = client.post(f"{SHOP}/items", files=[file], data={"id": "x"})
    assert reason in refused(answer, 422, "invalid-request")


def test_images_and_embeddings_do_not_come_together(client: TestClient, picture: dict[str, Any]) -> None:
    answer = client.post(f"{SHOP}/items", files=[npy(near(0)), ("image", picture["image"])], data={"id": "x"})
    assert "unknown fields ['image']" in refused(answer, 422, "invalid-request")


def test_more_embeddings_than_the_setting_are_refused(
    make_settings: MakeSettings, settings: Settings
) -> None:
    with TestClient(create_app(make_settings(settings.data_dir, max_embeddings=2))) as client:
        answer = sent(client, *({"id": str(i), "embedding": near(i)} for i in range(3)))
        expected = "3 embeddings, at most max_embeddings = 2 are accepted"
        assert refused(answer, 422, "invalid-request") == expected


def test_a_gallery_is_made_empty_and_filled(client: TestClient) -> None:
    made = client.put("/v1/galleries/fresh", params={"space": "clip@2", "dim": 3})
    assert (made.status_code, made.json()["n_items"], made.json()["dim"]) == (201, 0, 3)
    items = [{"id": str(i), "embedding": [i, 1.0, 2.0]} for i in range(3)]
    assert sent(client, *items, gallery="/v1/galleries/fresh", space="clip@2").json()["n_items"] == 3
    found = client.post("/v1/galleries/fresh/search", json={"embedding": [2, 1, 2]}).json()["candidates"]
    assert [one["id"] for one in found] == ["2", "1", "0"]
    again = client.put("/v1/galleries/fresh", params={"space": "clip@2", "dim": 3})
    assert (again.status_code, again.json()["n_items"]) == (200, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({"space": "clip"}, 422, "give space and dim together"),
        ({"dim": 3}, 422, "give space and dim together"),
        ({"space": "no space", "dim": 3}, 422, "is no name of a space"),
        ({"space": "clip", "dim": 3}, 409, "of 'clip@1', not ready 3-d embeddings of 'clip@1'"),
        ({"space": "clip@2", "dim": DIM}, 409, "of 'clip@1', not ready 12-d embeddings of 'clip@2'"),
    ],
)
def test_a_gallery_is_not_made_anew_for_another_space(
    client: TestClient, query: dict[str, Any], status: int, reason: str
) -> None:
    before = client.get(SHOP).json()
    answer = client.put(SHOP, params=query)
    assert (answer.status_code, reason in answer.json()["detail"]) == (status, True)
    assert client.get(SHOP).json() == before


def job(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """A job, done."""
    state = state_of(client.app)
    with JobWorker(state.jobs, state.kinds, heartbeat_seconds=0.5):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_rows_that_cannot_be_used_take_no_others_of_a_job_with_them(
    client: TestClient, sources: Path
) -> None:
    vectors = [*VECTORS, *VECTORS]
    vectors[5] = np.zeros(DIM)
    ids = [*(f"b/{i}" for i in range(2 * N - 1)), "a\nb"]
    write(sources / "b.parquet", vec=vectors, id=ids)
    asked = {"source": "b.parquet", "embedding_column": "vec"}
    refusal = job(client, "shop/reindex", **asked, delete=True)
    assert refusal["state"] == "failed"
    assert "nobody knows what is gone, and nothing was deleted" in str(refusal)
    assert job(client, "shop/reindex", **asked, max_failures=1)["state"] == "failed"
    done = job(client, "shop/reindex", **asked)
    assert (done["state"], done["result"]["n_failed"], done["result"]["n_items"]) == (
        "succeeded",
        2,
        3 * N - 2,
    )
    progress = done["progress"]
    assert [one["id"] for one in progress["failures"]] == ["b/5", f"row {2 * N}"]
    assert progress["done"] + progress["failed"] + progress["skipped"] == progress["total"] == 2 * N


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gallery", "fields", "status", "reason"),
    [
        ("fresh", {}, 422, "say what made these embeddings"),
        ("fresh", {"space": "no space"}, 422, "is no name of a space"),
        ("fresh", {"space": "clip", "index": "IVFx"}, 422, "'IVFx' is no kind of index"),
        ("fresh", {"space": "clip", "bundle": "tiny"}, 422, "no bundle embeds: leave the bundle out"),
        ("fresh", {"space": "clip", "embedding_column": "vector"}, 422, "has no column 'vector'"),
        ("fresh", {"space": "clip", "source": "gone.npz"}, 422, "neither a folder nor"),
        ("shop", {"space": "clip@2"}, 409, "of 'clip@1', not ready 12-d embeddings of 'clip@2'"),
        ("shop", {"source": "photos", "embedding_column": None}, 409, "of 'clip@1', not images embedded by"),
        ("shoes", {"space": "clip"}, 409, "holds images embedded by bundle 'tiny', not ready 12-d"),
        (
            "shoes",
            {"source": "photos", "space": "clip", "embedding_column": None},
            422,
            "read for its images",
        ),
        ("shop", {"source": None, "space": "clip", "embedding_column": None}, 422, "name the source"),
    ],
)
def test_what_cannot_become_a_version_is_refused_before_it_waits(
    client: TestClient, sources: Path, gallery: str, fields: dict[str, Any], status: int, reason: str
) -> None:
    (sources / "photos").mkdir()
    body = {"source": "b.parquet", "embedding_column": "vec", **fields}
    answer = client.post(f"/v1/admin/galleries/{gallery}/reindex", json=body)
    assert answer.status_code == status, answer.text
    assert reason in answer.json()["detail"]
    assert client.get("/v1/jobs").json()["jobs"] == []


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


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "npz", "lance"])
def test_queries_of_a_job_are_embeddings_of_any_kind(client: TestClient, sources: Path, suffix: str) -> None:
    queries, labels = (VECTORS + 0.05).astype(np.float32), [f"label {i // 6}" for i in range(N)]
    table = pa.table({"label": labels, "embedding": list(queries)})
    path = sources / f"queries.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    elif suffix == "lance":
        lance.write_dataset(table, path)
    else:
        np.savez(path, embeddings=queries, labels=labels)
    done = job(client, "shop/calibrations", target="far=10%", queries=path.name)
    assert done["state"] == "succeeded", done
    report = client.get(f"/v1/admin/galleries/shop/calibrations/{done['id']}").json()
    assert report["record"]["source"] == "queries"
    assert report["record"]["n_with_mate"] == N


@pytest.fixture
def alone(settings: Settings, make_settings: MakeSettings, tmp_path: Path) -> Settings:
    """Settings with a bundle that is not there, and a data folder with no gallery but that of embeddings."""
    shutil.rmtree(settings.gallery_path("shoes"))
    return make_settings(settings.data_dir, bundle=tmp_path / "no bundle")


@pytest.mark.slow
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


def test_the_bundle_is_opened_when_something_needs_it(alone: Settings, make_settings: MakeSettings) -> None:
    with TestClient(create_app(make_settings(alone.data_dir))) as client:
        assert client.get("/readyz").json()["bundle"] is None
        assert client.put("/v1/galleries/photos").status_code == 201
        assert client.get("/readyz").json()["bundle"] is not None
        assert b"vicinal_embedder_info{" in client.get("/metrics").content


def test_a_server_of_images_is_not_started_without_its_bundle(
    settings: Settings, make_settings: MakeSettings, tmp_path: Path
) -> None:
    """Negative control: it is seen at the start, and not with the first search."""
    with pytest.raises(BundleError, match="no model bundle"):
        create_app(make_settings(settings.data_dir, bundle=tmp_path / "no bundle"))
    with pytest.raises(BundleError, match="no model bundle"):
        create_app(make_settings(tmp_path / "nothing", bundle=tmp_path / "no bundle"))
