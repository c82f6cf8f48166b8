"""A service keeps searches where that is asked for, beside the way of a search."""

from __future__ import annotations

import base64
import io
import json
import logging
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.disks import full, mounted
from tests.service.answering.test_sharing import files_with
from tests.service.answering.test_sharing import state_of as state_of_store
from tests.service.http.test_processes import served
from tests.service.redis_server import RedisServer
from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_until
from vicinal.indexer.jobs.preparation import make_signature
from vicinal.indexer.storage.home.joining import join
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.answering import keeper
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import SearchNotFoundError
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of

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


def test_embeddings_are_kept_and_items_and_filtered_searches_are_not(
    serve: Serve, store: SearchStore, embedder: Embedder, photo: Callable[..., bytes]
) -> None:
    rows = embedder.embed([photo(1), photo(2)])
    with serve() as client:
        queries = [{"embedding": (3 * row).tolist()} for row in rows]
        answers = client.post(f"{SEARCH}/batch", json={"queries": queries}).json()["answers"]
        item = client.post(SEARCH, json={"item_id": "plain/view 0.png"}).json()
        filtered = search(client, photo(3), filter="label = 'plain'")
    assert item["search_id"] is filtered["search_id"] is None
    kept = [store.get(one["search_id"]) for one in answers]
    assert np.stack([one.embedding for one in kept]) == pytest.approx(rows, abs=1e-6)
    assert {one.signature for one in kept} == {None}
    assert store.picture(kept[0].id) is None
    assert store.n_kept == 2


def test_products_are_kept_with_their_own_scores(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes]
) -> None:
    options = {"group_by": "label", "threshold": "0.5", "include_candidates": "true"}
    with serve() as client:
        answer = search(client, photo(4), **options)
    kept = store.get(answer["search_id"])
    shown = [*answer["groups"], *answer["candidate_groups"]]
    assert [one.id for one in kept.candidates] == [one["items"][0]["id"] for one in shown]
    assert [one.score for one in kept.candidates] == pytest.approx([one["score"] for one in shown])
    assert kept.threshold == 0.5


def test_who_asked_is_kept_as_a_hash(serve: Serve, store: SearchStore, photo: Callable[..., bytes]) -> None:
    image = base64.b64encode(photo(1)).decode()
    with serve() as client:
        for _ in range(2):
            client.post(SEARCH, json={"image_base64": image})
    one, other = store.searches()
    assert one.sender == other.sender
    assert "testclient" not in one.sender
    assert len(one.sender) == 16


def test_more_than_a_process_keeps_a_second_is_answered_without_an_id(
    serve: Serve,
    store: SearchStore,
    embedder: Embedder,
    photo: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "_MOST_AT_ONCE", 3.0)
    monkeypatch.setattr(keeper, "_A_SECOND", 0.0)
    queries = [{"embedding": embedder.embed([photo(2)])[0].tolist()}] * 5
    with serve() as client:
        answers = client.post(f"{SEARCH}/batch", json={"queries": queries}).json()["answers"]
        told = client.get("/metrics").text
    assert [one["search_id"] is None for one in answers] == [False] * 3 + [True] * 2
    assert store.n_kept == 3
    assert 'vicinal_kept_searches_total{outcome="too_many"} 2.0' in told


def test_what_cannot_be_kept_is_told_once_and_touches_no_answer(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes], caplog: pytest.LogCaptureFixture
) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"no such file" * 1000)
    with caplog.at_level(logging.WARNING, SearchStore.__module__):
        for _ in range(2):
            with serve() as client:
                answers = [search(client, photo(2)) for _ in range(3)]
    assert {one["verdict"] for one in answers} == {"match"}
    said = [one.getMessage() for one in caplog.records if one.name == SearchStore.__module__]
    # Once in each of the two servers.
    assert len(said) == 2
    assert "searches of gallery 'shoes' are not kept" in said[0]
    assert "move" in said[0]


def test_one_that_cannot_be_kept_takes_no_other_with_it(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, failures = keeper.make_thumbnail, [RuntimeError("no memory")]

    def failing(image: Image.Image, side: int) -> bytes:
        if failures:
            raise failures.pop()
        return make(image, side)

    monkeypatch.setattr(keeper, "make_thumbnail", failing)
    images = [{"image_base64": base64.b64encode(photo(label)).decode()} for label in range(3)]
    with serve() as client:
        answers = client.post(f"{SEARCH}/batch", json={"queries": images}).json()["answers"]
        state_of(client.app).keeper.wait()  # type: ignore[arg-type]
        told = client.get("/metrics").text
    assert {one.id for one in store.searches()} == {one["search_id"] for one in answers[1:]}
    assert 'vicinal_kept_searches_total{outcome="failed"} 1.0' in told


def test_a_gallery_that_goes_meanwhile_does_not_come_back(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes]
) -> None:
    with serve() as client:
        answer = search(client, photo(2))
        client.delete("/v1/galleries/shoes", params={"confirm": "shoes"}).raise_for_status()
    assert answer["search_id"]
    assert not store.gallery.exists()
    with pytest.raises(SearchNotFoundError):
        store.get(answer["search_id"])


def test_kept_searches_are_counted_and_deleted_on_demand(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes], data: Path
) -> None:
    address = "/v1/admin/galleries/shoes/searches"
    with serve() as client:
        ids = [search(client, photo(number))["search_id"] for number in range(4)]
        # What was answered and waits to be kept is meant too.
        assert client.delete(address, params={"ids": f"{ids[0]},{'0' * 32}"}).json() == {"deleted": 1}
        found = client.get("/v1/galleries/shoes").json()
        assert (found["kept_searches"], found["kept_searches_bytes"]) == (3, store.n_bytes)
        told = client.get("/metrics").text
        assert 'vicinal_gallery_kept_searches{gallery="shoes"} 3.0' in told
        assert f'vicinal_gallery_kept_searches_bytes{{gallery="shoes"}} {float(store.n_bytes)}' in told
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


def test_only_who_runs_the_service_deletes_kept_searches(serve: Serve, photo: Callable[..., bytes]) -> None:
    keys = {"a" * 20: ("search",), "b" * 20: ("search", "write")}
    with serve(api_keys=keys) as client:
        for key, status in [(None, 401), ("a" * 20, 403), ("b" * 20, 403)]:
            headers = {"X-API-Key": key} if key else {}
            done = client.delete("/v1/admin/galleries/shoes/searches", headers=headers)
            assert done.status_code == status


def test_a_damaged_file_is_told_and_hides_no_gallery(serve: Serve, store: SearchStore) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"no such file" * 1000)
    with serve() as client:
        found = client.get("/v1/galleries/shoes").json()
        assert found["kept_searches"] is None
        assert "vicinal_gallery_kept_searches{" not in client.get("/metrics").text
        refused = client.delete("/v1/admin/galleries/shoes/searches")
    assert refused.status_code == 500
    assert refused.json()["type"].endswith("searches-damaged")


def test_old_searches_go_where_nothing_is_kept_any_more(
    serve: Serve, store: SearchStore, photo: Callable[..., bytes]
) -> None:
    with serve() as client:
        search(client, photo(2))
    with closing(sqlite3.connect(store.path)) as file:
        file.execute("update searches set at = at - 3 * 86400")
        file.commit()
    # A server looks when it begins.
    with serve(keep_searches=0, keep_searches_days=4):
        pass
    assert store.n_kept == 1
    with serve(keep_searches=0, keep_searches_days=2):
        pass
    assert store.n_kept == 0


@pytest.mark.slow
def test_a_full_disk_keeps_no_search_and_is_told_until_there_is_room(
    tmp_path: Path, calibrated_base: Path, make_settings: MakeSettings, photo: Callable[..., bytes]
) -> None:
    with mounted(tmp_path / "disk", "16m") as disk:
        shutil.copytree(calibrated_base, disk / "data")
        store = SearchStore(disk / "data" / "galleries" / "shoes")
        app = create_app(make_settings(disk / "data", keep_searches=100))
        with TestClient(app) as client:
            with full(disk, left=0):
                refused = search(client, photo(2, side=512))
                state_of(app).keeper.wait()
                told = client.get("/readyz").json()["degraded"]
            kept = search(client, photo(3))
            state_of(app).keeper.wait()
            assert client.get("/readyz").json()["degraded"] == []
        assert refused["verdict"] == kept["verdict"] == "match"
        (problem,) = told
        assert problem.startswith("searches of gallery 'shoes' are not kept: ")
        assert [one.id for one in store.searches()] == [kept["search_id"]]


def test_what_was_just_searched_for_can_be_answered_at_once(
    serve: Serve, photo: Callable[..., bytes]
) -> None:
    with serve() as client:
        body = {"search_id": search(client, photo(2))["search_id"], "absent": True}
        answered = client.post("/v1/galleries/shoes/answers", json=body)
    assert answered.status_code == 200, answered.text


@pytest.mark.slow
def test_two_servers_keep_into_one_file_and_a_killed_one_loses_only_what_waited(
    data: Path, store: SearchStore, photo: Callable[..., bytes], tiny_bundle: ModelBundle
) -> None:
    variables = {"VICINAL_KEEP_SEARCHES": "100", "VICINAL_WORKERS": "1", "VICINAL_RUN_JOBS": "false"}
    given: list[str] = []

    def ask(port: int, label: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
            given.append(search(client, photo(label, number=20 + len(given)))["search_id"])

    with (
        served(data, tiny_bundle, **variables) as (first, killed),
        served(data, tiny_bundle, **variables) as (second, _),
    ):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: ask((first, second)[n % 2], n % 10), range(20)))
        wait_until(lambda: store.n_kept == 20)
        before = {one.id for one in store.searches()}
        for label in range(5):
            ask(first, label)
        killed.kill()
        killed.wait()
        ask(second, 5)
    # The other one wrote what it had before it ended, and all that was there is there once.
    kept = [one.id for one in store.searches()]
    assert None not in given
    assert len(kept) == len(set(kept))
    assert before | {given[-1]} <= set(kept) <= set(given)
    # One person who looks for a thing by both servers is on one visit.
    of_visit = defaultdict(set)
    for one in store.searches():
        of_visit[one.candidates[0].label].add(one.visit)
    assert {len(visits) for visits in of_visit.values()} == {1}


@pytest.mark.slow
def test_the_processes_of_a_server_keep_into_one_file_and_write_what_waits_when_they_stop(
    data: Path, store: SearchStore, photo: Callable[..., bytes], tiny_bundle: ModelBundle
) -> None:
    with (
        served(data, tiny_bundle, "--workers", "2", VICINAL_KEEP_SEARCHES="100") as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client,
    ):
        given = [search(client, photo(number, number=20))["search_id"] for number in range(10)]
    assert {one.id for one in store.searches()} == {one for one in given if one}
    assert store.n_kept == 10


@pytest.mark.slow
def test_replicas_ask_about_answer_and_delete_each_others_searches(
    data: Path,
    tmp_path: Path,
    make_settings: MakeSettings,
    photo: Callable[..., bytes],
    redis_server: RedisServer,
) -> None:
    admin, home = "/v1/admin/galleries/shoes", tmp_path / "home"
    mirrors = [join(folder, str(home)) for folder in (data, tmp_path / "other")]
    settings = [make_settings(one.data_dir, keep_searches=100, redis_url=redis_server.url) for one in mirrors]
    with ExitStack() as running:
        one, other = (running.enter_context(TestClient(create_app(each))) for each in settings)
        given = [search(one, photo(number, number=20))["search_id"] for number in range(4)]
        # It waits for what has not arrived there yet, for less than a busy machine may take.
        said = {"search_id": given[0], "absent": True}
        wait_until(lambda: other.post("/v1/galleries/shoes/answers", json=said).status_code == 200)
        wait_until(lambda: one.get(f"{admin}/searches/{given[0]}").json()["answers"])
        (answer,) = one.get(f"{admin}/searches/{given[0]}").json()["answers"]
        taken = one.delete(f"/v1/galleries/shoes/answers/{answer['number']}")
        assert taken.status_code == 200, taken.text
        wait_until(lambda: not other.get(f"{admin}/searches/{given[0]}").json()["answers"])
        # What is drawn next follows from these.
        one.get(f"{admin}/answers/next?n=2")
        stores = [SearchStore(each.data_dir / "galleries" / "shoes") for each in mirrors]
        wait_until(lambda: state_of_store(stores[0]) == state_of_store(stores[1]))
        # The tables at the beginning are those of any picture.
        picture = one.get(f"{admin}/searches/{given[1]}/image").content[-240:]
        assert files_with(home, picture)
        assert other.delete(f"{admin}/searches", params={"ids": given[1]}).json() == {"deleted": 1}
        wait_until(lambda: one.get(f"{admin}/searches/{given[1]}").status_code == 404)
        wait_until(lambda: not files_with(tmp_path, picture))
        assert not any("not shared" in each.get("/readyz").text for each in (one, other))
