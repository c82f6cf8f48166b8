"""A service keeps searches where that is asked for, beside the way of a search."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.jobs.preparation import make_signature
from vicinal.indexer.state import DatabaseAwayError, schema
from vicinal.models.embedder import Embedder
from vicinal.service.answering.keeper import SearchKeeper
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.app import create_app

SEARCH = "/v1/galleries/shoes/search"
Serve = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture
def data(tmp_path: Path, calibrated_base: Path) -> Path:
    return Path(shutil.copytree(calibrated_base, tmp_path / "served"))


@pytest.fixture
def store(data: Path) -> SearchStore:
    return SearchStore(data / "galleries" / "shoes")


@pytest.fixture
def serve(data: Path, make_settings: MakeSettings) -> Serve:
    """A client of a running application, which has kept all that it will when the context is over."""

    def run(**changes: object) -> AbstractContextManager[TestClient]:
        return TestClient(create_app(make_settings(data, **{"keep_searches": 100, **changes})))

    return run


@pytest.fixture
def photo(view: View, encode: Encode) -> Callable[..., bytes]:
    """A new photo of a label."""

    def make(label: int, number: int = 9, side: int = 48, **options: object) -> bytes:
        return encode(view(label, number).resize((side, side)), **options)

    return make


def search(client: TestClient | httpx.Client, image: bytes, **options: str) -> dict[str, Any]:
    answered = client.post(SEARCH, files={"image": ("a.png", image)}, data=options)
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def test_a_search_is_kept_with_what_was_found(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes], embedder: Embedder
) -> None:
    exif = Image.Exif()
    exif[0x010F] = "Camera of somebody"
    image = photo(2, side=900, kind="JPEG", exif=exif)
    with serve() as client:
        answer = search(client, image, limit="1")
    kept = store.get(answer["search_id"])
    assert kept.embedding == pytest.approx(embedder.embed([image])[0], abs=1e-6)
    assert (kept.verdict, kept.threshold) == (answer["verdict"], answer["threshold"]["value"])
    assert kept.calibration == answer["threshold"]["calibration"]
    for name in ("bundle", "version", "revision", "pipeline"):
        assert getattr(kept, name) == answer[name]
    best = answer["matches"][0]
    assert (kept.candidates[0].id, kept.candidates[0].label) == (best["id"], "größe 42")
    assert kept.top_score == pytest.approx(best["score"], abs=1e-6)
    scores = [one.score for one in kept.candidates]
    # Also of those that the answer did not show.
    assert len(scores) == 20
    assert scores == sorted(scores, reverse=True)
    # A small picture without what its file told of the camera.
    picture = store.picture(kept.id) or b""
    small = Image.open(io.BytesIO(picture))
    assert (small.format, max(small.size)) == ("JPEG", 512)
    assert not small.getexif()
    assert kept.signature == make_signature(embedder.decode(image)).tobytes()


def test_nothing_is_kept_unless_asked_for(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes]
) -> None:
    with serve(keep_searches=0) as client:
        assert search(client, photo(2))["search_id"] is None
    assert not store.exists


def test_what_cannot_be_kept_is_told_once_and_touches_no_answer(
    serve: Serve,
    photo: Callable[..., bytes],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DatabaseAwayError("the database does not answer")

    monkeypatch.setattr(SearchStore, "keep", refuse)
    with caplog.at_level(logging.WARNING, SearchKeeper.__module__):
        for _ in range(2):
            with serve() as client:
                answers = [search(client, photo(2)) for _ in range(3)]
                client.app.state.vicinal.keeper.wait()  # type: ignore[attr-defined]
                assert client.get("/readyz").json()["degraded"]
    assert {one["verdict"] for one in answers} == {"match"}
    said = [one.getMessage() for one in caplog.records if one.name == SearchKeeper.__module__]
    # Once in each of the two servers.
    assert len(said) == 2
    assert "searches of gallery 'shoes' are not kept" in said[0]
    assert "does not answer" in said[0]


def test_kept_searches_are_counted_and_deleted_on_demand(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes], data: Path
) -> None:
    address = "/v1/admin/galleries/shoes/searches"
    with serve() as client:
        ids = [search(client, photo(number))["search_id"] for number in range(4)]
        # What was answered and waits to be kept is meant too.
        assert client.delete(address, params={"ids": f"{ids[0]},{'0' * 32}"}).json() == {"deleted": 1}
        found = client.get("/v1/galleries/shoes").json()
        assert (found["kept_searches"], found["kept_searches_bytes"]) == (3, store.readable[1])
        told = client.get("/metrics").text
        assert 'vicinal_gallery_kept_searches{gallery="shoes"} 3.0' in told
        assert f'vicinal_gallery_kept_searches_bytes{{gallery="shoes"}} {float(store.readable[1])}' in told
        before = store.get(ids[2]).at.isoformat()
        assert client.delete(address, params={"before": before}).json() == {"deleted": 1}
        assert client.delete(address, params={"before": before, "ids": ids[2]}).status_code == 422
        assert client.delete(address, params={"before": "2026-01-01T00:00:00"}).status_code == 422
        assert client.delete(address, params={"before": "0.5"}).status_code == 422
        assert client.delete(address, params={"ids": ""}).status_code == 422
        assert client.delete(address).json() == {"deleted": 2}
        assert client.delete("/v1/admin/galleries/none/searches").status_code == 404
    assert store.n_kept == 0
    lines = [json.loads(line) for line in (data / "audit" / "audit.jsonl").read_text().splitlines()]
    deletions = [one for one in lines if "n_deleted" in one]
    assert [(one["searches"], one["n_deleted"]) for one in deletions] == [
        ([ids[0], "0" * 32], 1),
        ("all", 1),
        ("all", 2),
    ]
    assert deletions[1]["before"]


def test_old_searches_go_where_nothing_is_kept_any_more(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes]
) -> None:
    with serve() as client:
        search(client, photo(2))
    with store.state.changing() as rows:
        (one,) = rows.all(schema.searches)
        rows.put(schema.searches, {**one._asdict(), "at": one.at - 3 * 86400})
    # A server looks when it begins.
    with serve(keep_searches=0, keep_searches_days=4):
        pass
    assert store.n_kept == 1
    with serve(keep_searches=0, keep_searches_days=2):
        pass
    assert store.n_kept == 0
