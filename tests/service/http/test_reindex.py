"""Re-index jobs over HTTP: accepted, refused, followed to the end, and nothing read that must not be."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.hub_server import put_dataset
from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_for_job
from tests.web_server import serving
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving as serving_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.settings import SCOPES

REINDEX = "/v1/admin/galleries/shoes/reindex"
SEARCH = "/v1/galleries/shoes/search"


@pytest.fixture
def sources(tmp_path: Path, catalog: Path) -> Path:
    """Folder of sources: `photos` holds 18 new items, `all` those of the gallery."""
    root = tmp_path / "sources"
    for label in sorted(folder.name for folder in catalog.iterdir())[:3]:
        shutil.copytree(catalog / label, root / "photos" / f"new {label}")
    shutil.copytree(catalog, root / "all")
    return root


@pytest.fixture
def bundles(tmp_path: Path, write_bundle: Callable[..., ModelBundle], tiny_bundle: ModelBundle) -> Path:
    """Folder of bundles with `other`, and with `same`, which is the service's."""
    write_bundle(tmp_path / "bundles" / "other", seed=1)
    shutil.copytree(tiny_bundle.path, tmp_path / "bundles" / "same")
    return tmp_path / "bundles"


@pytest.fixture
def app(data_dir: Path, make_settings: MakeSettings, sources: Path, bundles: Path) -> FastAPI:
    return create_app(make_settings(data_dir, sources_dir=sources, bundles_dir=bundles))


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


@pytest.mark.slow
def test_a_new_source_is_taken_over_into_the_searched_version(client: TestClient, worker: None) -> None:
    before = client.get("/v1/galleries/shoes").json()
    accepted = client.post(REINDEX, json={"source": "photos"})
    assert (accepted.status_code, accepted.json()["state"]) == (202, "queued")
    assert accepted.headers["Location"] == f"/v1/jobs/{accepted.json()['id']}"
    job = wait_for_job(client, accepted)
    after = client.get("/v1/galleries/shoes").json()
    assert (job["state"], job["problem"], job["result"]["is_active"]) == ("succeeded", None, True)
    assert (before["n_items"], after["n_items"], after["version"]) == (60, 78, job["result"]["version"])
    assert (job["result"]["counts"], job["result"]["n_embedded"]) == ({"added": 18}, 18)
    assert {name: job["progress"][name] for name in ("total", "done", "failed", "skipped")} == {
        "total": 18,
        "done": 18,
        "failed": 0,
        "skipped": 0,
    }


@pytest.mark.slow
def test_ids_and_labels_of_a_folder_are_those_of_the_command_line(client: TestClient, worker: None) -> None:
    path = "/v1/admin/galleries/boots/reindex"
    job = wait_for_job(client, client.post(path, json={"source": "photos"}))
    look = job["result"]["source"]
    assert (look["n_items"], look["n_labels"], look["label_sizes"]) == (
        18,
        3,
        {"min": 6, "median": 6, "max": 6},
    )
    first = client.get("/v1/galleries/boots/items").json()["items"][0]
    assert first["id"].startswith(f"photos/{first['label']}/")
    body = {"source": "photos", "prefix": "", "label_from": "regex:(view [01])", "include_hidden": True}
    assert wait_for_job(client, client.post(path, json=body))["result"]["source"]["n_unlabelled"] == 12
    items = client.get("/v1/galleries/boots/items").json()["items"]
    plain = [item for item in items if not item["id"].startswith("photos/")]
    assert (len(items), {item["label"] for item in plain}) == (36, {"view 0", "view 1", None})


@pytest.mark.slow
def test_hidden_photos_are_counted_and_become_items_only_where_they_are_asked_for(
    client: TestClient, worker: None, sources: Path
) -> None:
    photo = next((sources / "photos").glob("*/*.png"))
    for hidden in ("@eaDir", "#recycle", ".Trash-1000/files", "new plain/.thumbnails"):
        (sources / "photos" / hidden).mkdir(parents=True)
        shutil.copy(photo, sources / "photos" / hidden / "1.png")
    shutil.copy(photo, sources / "photos" / ".2.png")
    path = "/v1/admin/galleries/boots/reindex"

    def index(**options: bool) -> tuple[int, dict[str, int], int]:
        result = wait_for_job(client, client.post(path, json={"source": "photos", **options}))["result"]
        return (
            result["source"]["n_items"],
            result["source"]["hidden"],
            client.get("/v1/galleries/boots").json()["n_items"],
        )

    hidden = {"@eaDir": 1, "#recycle": 1, ".Trash-1000": 1, ".thumbnails": 1, ".*": 1}
    assert index() == (18, hidden, 18)
    assert index(include_hidden=False) == (18, hidden, 18)
    assert index(include_hidden=True) == (23, {}, 23)
    # Not read again: held items stay until a removal is asked for.
    assert index() == (18, hidden, 23)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"source": "photos", "label_from": "regex:x"}, "'regex:x' has 0 groups, expected one"),
        ({"source": "photos", "label_from": "colour"}, "labels cannot be taken from 'colour'"),
        ({"prefix": ""}, "name a source"),
        ({"label_column": "sku"}, "name a source"),
    ],
)
def test_labels_that_cannot_be_taken_are_refused_at_once(
    client: TestClient, body: dict[str, Any], sentence: str
) -> None:
    answer = client.post(REINDEX, json=body)
    assert (answer.status_code, sentence in answer.json()["detail"]) == (422, True)


@pytest.mark.slow
def test_a_shard_is_a_source_and_no_way_out_of_the_sources(
    client: TestClient, worker: None, sources: Path, tmp_path: Path, catalog: Path
) -> None:
    for folder in (sources, tmp_path):
        with tarfile.open(folder / "photos.tar", "w") as shard:
            shard.add(catalog / "plain", "plain")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "photos.tar"}))
    assert (job["state"], job["result"]["source"]["n_items"]) == ("succeeded", 6)
    (sources / "list.csv").write_text(f"path\ntar://{tmp_path}/photos.tar#plain/view 0.png", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "list.csv"}))
    assert (job["state"], "sources_dir" in job["problem"]) == ("failed", True)
    assert client.post(REINDEX, json={"source": "../photos.tar"}).status_code == 422


@pytest.mark.slow
def test_a_parquet_file_of_images_is_a_source_and_no_way_out_of_the_sources(
    client: TestClient, worker: None, sources: Path, tmp_path: Path, catalog: Path
) -> None:
    images = [one.read_bytes() for one in sorted((catalog / "plain").iterdir())]
    for folder in (sources / "sets", tmp_path):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"image": pa.array(images)}), folder / "photos.parquet")
    for source in ("sets", "sets/photos.parquet"):
        job = wait_for_job(client, client.post(REINDEX, json={"source": source}))
        assert (job["state"], job["result"]["source"]["n_items"]) == ("succeeded", 6)
    (sources / "list.csv").write_text(f"path\ndataset://{tmp_path}/photos.parquet#image/0", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "list.csv"}))
    assert (job["state"], "sources_dir" in job["problem"]) == ("failed", True)


@pytest.mark.slow
def test_odd_names_in_a_folder_end_no_job(client: TestClient, worker: None, sources: Path) -> None:
    odd = [b"caf\xe9.png", b"na\xefve/1.png", b"line\nbreak.png", b"x.\xff"]
    image = next((sources / "photos").rglob("*.png")).read_bytes()
    for name in odd:
        path = sources / "photos" / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image)
    (sources / "photos" / "loop").symlink_to("loop")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "photos"}))
    assert (job["state"], job["result"]["n_failed"]) == ("succeeded", 3)
    failed = {one["path"].rpartition("photos/")[2] for one in job["progress"]["failures"]}
    assert failed == {"caf\\xe9.png", "na\\xefve/1.png", "line\\nbreak.png"}
    assert job["result"]["source"]["other_files"] == {".\\xff": 1, "": 1}


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_read_where_that_is_allowed(
    data_dir: Path,
    make_settings: MakeSettings,
    sources: Path,
    encode: Encode,
    view: View,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("huggingface_hub")
    stream = io.BytesIO()
    pq.write_table(pa.table({"image": pa.array([encode(view(i, 0)) for i in (1, 2, 3)])}), stream)
    body = {"source": "hf:shop/toys"}
    assert "VICINAL_ALLOW_HUB" in client.post(REINDEX, json=body).json()["detail"]
    app = create_app(make_settings(data_dir, sources_dir=sources, allow_hub=True))
    client = TestClient(app)
    with (
        serving() as web,
        JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5),
    ):
        monkeypatch.setenv("HF_ENDPOINT", web.url(""))
        put_dataset(web, "shop/toys", {"data/train.parquet": stream.getvalue()})
        job = wait_for_job(client, client.post(REINDEX, json=body))
        assert (job["state"], job["result"]["source"]["n_items"]) == ("succeeded", 3)
        again = wait_for_job(client, client.post(REINDEX, json=body))
        assert again["result"]["counts"]["unchanged"] == 3
        for source, sentence in (("hf:shop/none", "no data set"), ("hf:shop/toys/none", "no Parquet files")):
            job = wait_for_job(client, client.post(REINDEX, json={"source": source}))
            assert (job["state"], sentence in str(job["problem"])) == ("failed", True)
    # What is kept of the hub is for jobs alone, and the hub for sources alone.
    assert (data_dir / "hub").is_dir()
    for refused in ({"source": "hf:toys"}, body | {"space": "clip"}):
        assert client.post(REINDEX, json=refused).status_code == 422


@pytest.mark.slow
def test_buckets_are_read_by_no_job(client: TestClient, worker: None, sources: Path) -> None:
    (sources / "list.csv").write_text("path\ns3://bucket/1.png", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "list.csv"}))
    assert (job["state"], "jobs read no buckets" in str(job["problem"])) == ("failed", True)


@pytest.mark.slow
def test_other_settings_need_no_source(client: TestClient, worker: None, app: FastAPI) -> None:
    job = wait_for_job(client, client.post(REINDEX, json={"index": "HNSW8"}))
    assert (job["state"], client.get("/v1/galleries/shoes").json()["index"]) == ("succeeded", "HNSW8")
    staging = state_of(app).settings.galleries_path / "shoes" / "staging"
    assert list(staging.iterdir()) == []


@pytest.mark.slow
def test_another_bundle_waits_for_the_service_that_runs_it(
    client: TestClient, worker: None, data_dir: Path, make_settings: MakeSettings, bundles: Path
) -> None:
    """Blue and green: the old version is searched meanwhile and afterwards, until the service is switched."""
    body = {"bundle": "other", "source": "all", "prefix": "", "activate": "manual"}
    job = wait_for_job(client, client.post(REINDEX, json=body))
    assert (job["state"], job["result"]["is_active"]) == ("succeeded", False)
    assert client.post(SEARCH, json={"item_id": "plain/view 0.png"}).status_code == 200
    Gallery(data_dir / "galleries" / "shoes").pointer.activate(job["result"]["version"])
    green = TestClient(create_app(make_settings(data_dir, bundle=bundles / "other")))
    assert green.get("/v1/galleries/shoes").json()["n_items"] == 60


@pytest.mark.slow
def test_another_bundle_below_bundles_dir_is_searched_at_once(client: TestClient, worker: None) -> None:
    before = client.get("/v1/galleries/shoes").json()["bundle"]
    job = wait_for_job(client, client.post(REINDEX, json={"bundle": "other", "source": "all", "prefix": ""}))
    after = client.get("/v1/galleries/shoes").json()
    assert (job["result"]["is_active"], after["n_items"], after["bundle"] != before) == (True, 60, True)
    item = client.get("/v1/galleries/shoes/items").json()["items"][0]["id"]
    assert client.post(SEARCH, json={"item_id": item}).status_code == 200


def test_a_second_job_on_a_gallery_is_refused_with_the_first_one_s_id(client: TestClient) -> None:
    first = client.post(REINDEX, json={"source": "photos"}).json()["id"]
    second = client.post(REINDEX, json={})
    assert (second.status_code, second.json()["job"]) == (409, first)
    assert second.json()["type"] == "urn:vicinal:problem:job-conflict"
    client.delete(f"/v1/jobs/{first}")
    assert client.post(REINDEX, json={}).status_code == 202


@pytest.mark.slow
def test_a_gallery_that_is_new_is_made(client: TestClient, worker: None) -> None:
    accepted = client.post("/v1/admin/galleries/boots/reindex", json={"source": "photos"})
    assert wait_for_job(client, accepted)["state"] == "succeeded"
    assert client.get("/v1/galleries/boots").json()["n_items"] == 18


@pytest.mark.slow
def test_files_that_cannot_be_read_are_named(client: TestClient, worker: None, sources: Path) -> None:
    for number in range(25):
        (sources / "photos" / f"broken {number:02}.png").write_text("no picture", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "photos"}))
    assert (job["progress"]["done"], job["progress"]["failed"]) == (18, 25)
    failures = job["progress"]["failures"]
    assert (len(failures), failures[0]["id"]) == (20, "photos/broken 00.png")
    assert "PNG" in failures[0]["reason"] or "image" in failures[0]["reason"]


@pytest.mark.slow
def test_too_many_failures_end_the_job_and_the_old_version_stays(
    client: TestClient, worker: None, sources: Path
) -> None:
    for number in range(3):
        (sources / "photos" / f"broken {number}.png").write_text("no picture", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "photos", "max_failures": 2}))
    assert (job["state"], "at most 2" in job["problem"]) == ("failed", True)
    assert client.get("/v1/galleries/shoes").json()["n_items"] == 60


def reindexed(client: TestClient, **body: Any) -> dict[str, Any]:
    """The job of a re-index of `photos`, when it is over."""
    return dict(wait_for_job(client, client.post(REINDEX, json={"source": "photos", **body})))


@pytest.mark.slow
def test_a_source_is_taken_over_again_and_again(
    client: TestClient, worker: None, sources: Path, view: View
) -> None:
    version = reindexed(client)["result"]["version"]
    again = reindexed(client)["result"]
    assert (again["is_new"], again["version"], again["counts"]) == (False, version, {"unchanged": 18})
    first, second, *_ = sorted((sources / "photos").rglob("*.png"))
    view(70, 1).save(first)
    second.unlink()
    result = reindexed(client)["result"]
    assert result["counts"] == {"changed": 1, "unchanged": 16, "missing": 1}
    assert (result["n_embedded"], result["n_items"]) == (1, 78)
    result = reindexed(client, delete=True)["result"]
    assert (result["counts"], result["n_items"]) == ({"unchanged": 17, "removed": 1}, 77)


@pytest.mark.slow
def test_what_was_deleted_comes_back_only_where_that_is_asked_for(client: TestClient, worker: None) -> None:
    reindexed(client)
    items = client.get("/v1/galleries/shoes/items", params={"size": 100}).json()["items"]
    first, second, third, *_ = (item["id"] for item in items if item["id"].startswith("photos/"))
    assert client.delete(f"/v1/galleries/shoes/items/{first}").status_code == 204
    client.post("/v1/galleries/shoes/items/delete", json={"ids": [second, third]}).raise_for_status()
    for body in ({}, {"delete": True}, {"on_conflict": "replace"}):
        assert reindexed(client, **body)["result"]["counts"] == {"unchanged": 15, "left_out": 3}
    assert reindexed(client, restore=True)["result"]["counts"] == {"added": 3, "unchanged": 15}
    assert client.post(REINDEX, json={"restore": True}).status_code == 422


@pytest.mark.slow
def test_ids_of_other_images_are_a_conflict(
    client: TestClient, worker: None, sources: Path, view: View, catalog: Path
) -> None:
    name = next(catalog.rglob("*.png")).relative_to(catalog)
    body = {"prefix": ""}
    (sources / "photos" / name).parent.mkdir()
    view(70, 1).save(sources / "photos" / name)
    job = reindexed(client, **body)
    assert (job["state"], job["problem_type"]) == ("failed", "urn:vicinal:problem:item-exists")
    assert job["problem_members"] == {"id": str(name)}
    assert "'replace' or 'skip' on conflict" in job["problem"]
    assert client.get("/v1/galleries/shoes").json()["n_items"] == 60
    assert reindexed(client, on_conflict="skip", **body)["result"]["counts"] == {"added": 18, "skipped": 1}
    counts = reindexed(client, on_conflict="replace", **body)["result"]["counts"]
    assert counts == {"replaced": 1, "unchanged": 18}


@pytest.mark.slow
def test_a_bundle_that_cannot_embed_all_of_a_gallery_again_is_refused(
    client: TestClient, worker: None
) -> None:
    """The files of the gallery's other items lie outside of `sources_dir`."""
    job = reindexed(client, bundle="other")
    assert (job["state"], "60 of its images cannot be read any more" in job["problem"]) == ("failed", True)
    assert client.get("/v1/galleries/shoes").json()["n_items"] == 60


@pytest.mark.slow
def test_a_version_that_would_be_the_same_is_not_compared(client: TestClient, worker: None) -> None:
    reindexed(client)
    result = reindexed(client, activate="manual")["result"]
    assert (result["is_new"], "comparison" in result) == (False, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["../elsewhere", "/etc", "photos/../../secrets", "link", "no such folder", "photos/plain.txt"]
)
def test_sources_elsewhere_are_refused(
    client: TestClient, sources: Path, tmp_path: Path, source: str
) -> None:
    for folder in ("elsewhere", "secrets"):
        (tmp_path / folder).mkdir()
    (sources / "link").symlink_to(tmp_path / "secrets", target_is_directory=True)
    (sources / "photos" / "plain.txt").write_text("text", encoding="utf-8")
    answer = client.post(REINDEX, json={"source": source})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:vicinal:problem:invalid-request")


def test_no_source_is_read_without_a_folder_for_them(data_dir: Path, make_settings: MakeSettings) -> None:
    client = TestClient(create_app(make_settings(data_dir)))
    answer = client.post(REINDEX, json={"source": "photos"})
    assert (answer.status_code, "VICINAL_SOURCES_DIR" in answer.json()["detail"]) == (422, True)


@pytest.mark.slow
def test_a_manifest_and_a_link_cannot_point_elsewhere(
    client: TestClient,
    worker: None,
    sources: Path,
    tmp_path: Path,
    view: View,
) -> None:
    secret = tmp_path / "secret.png"
    view(1, 1).save(secret)
    inside = next((sources / "photos").rglob("*.png"))
    (sources / "photos" / "link.png").symlink_to(secret)
    rows = ["id,path", f"inside,{inside.relative_to(sources)}", f"absolute,{secret}", "up,../secret.png"]
    (sources / "list.csv").write_text("\n".join([*rows, "link,photos/link.png"]) + "\n", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "list.csv"}))
    assert (job["state"], job["result"]["counts"]) == ("succeeded", {"added": 1})
    assert {one["id"] for one in job["progress"]["failures"]} == {"absolute", "up", "link"}
    assert all("sources_dir" in one["reason"] for one in job["progress"]["failures"])


@pytest.mark.slow
def test_the_name_of_an_upload_is_not_read_as_a_path(
    data_dir: Path,
    make_settings: MakeSettings,
    catalog: Path,
    bundles: Path,
    tmp_path: Path,
    view: View,
    encode: Encode,
) -> None:
    secret = tmp_path / "secret.png"
    view(1, 1).save(secret)
    app = create_app(make_settings(data_dir, sources_dir=catalog, bundles_dir=bundles))
    client = TestClient(app)
    upload = {"image": (str(secret), encode(view(2, 2)), "image/png")}
    client.post("/v1/galleries/shoes/items", files=upload, data={"id": "mine"})
    with JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5):
        body = {"bundle": "other", "activate": "manual"}
        job = wait_for_job(client, client.post(REINDEX, json=body))
        assert (job["state"], "1 of its images cannot be read" in job["problem"]) == ("failed", True)
        job = wait_for_job(client, client.post(REINDEX, json={**body, "max_failures": 1}))
    assert (job["state"], job["result"]["n_items"]) == ("succeeded", 60)
    assert [(one["id"], "sources_dir" in one["reason"]) for one in job["progress"]["failures"]] == [
        ("mine", True)
    ]


@pytest.mark.slow
def test_a_server_does_the_job_and_tells_of_it_to_the_end(app: FastAPI) -> None:
    with serving_app(app) as url, httpx.Client(base_url=url, timeout=60.0) as http:
        accepted = http.post(REINDEX, json={"source": "photos"})
        events = http.get(f"{accepted.headers['Location']}/events").text.split("\n\n")
        assert http.get("/v1/galleries/shoes").json()["n_items"] == 78
    last = dict(line.split(": ", 1) for line in events[-2].splitlines())
    assert (last["event"], json.loads(last["data"])["state"]) == ("end", "succeeded")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"bundle": "missing"}, "there is no bundle"),
        ({"bundle": "../other"}, "bundle"),
        ({"index": "Nonsense"}, "Nonsense"),
        ({"activate": "sometimes"}, "activate"),
        ({"max_failures": -1}, "max_failures"),
        ({"on_conflict": "guess"}, "on_conflict"),
        ({"delete": True}, "delete is about a source"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_work_is_refused_before_it_waits(
    client: TestClient, body: dict[str, Any], said: str
) -> None:
    answer = client.post(REINDEX, json=body)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True)
    assert client.get("/v1/jobs").json() == {"jobs": []}


@pytest.mark.slow
def test_a_bundle_by_name_may_be_the_service_s_own(client: TestClient, worker: None) -> None:
    job = wait_for_job(client, client.post(REINDEX, json={"bundle": "same"}))
    assert (job["state"], job["result"]["is_active"]) == ("succeeded", True)


@pytest.mark.parametrize(("gallery", "status"), [("boots", 404), ("No%20Name", 422)])
def test_a_gallery_that_is_none_needs_a_source_and_a_name(
    client: TestClient, gallery: str, status: int
) -> None:
    assert client.post(f"/v1/admin/galleries/{gallery}/reindex", json={}).status_code == status


@pytest.mark.slow
@pytest.mark.parametrize(("key", "status"), [("a", 422), ("w", 403), ("none", 401)])
def test_re_indexing_is_for_administrators(
    data_dir: Path, make_settings: MakeSettings, key: str, status: int
) -> None:
    keys = {"a": ["admin"], "w": ["search", "write"]}
    client = TestClient(create_app(make_settings(data_dir, api_keys=keys)))
    answer = client.post(REINDEX, json={"index": "Nonsense"}, headers={"X-API-Key": key})
    assert answer.status_code == status


@pytest.mark.slow
@pytest.mark.parametrize("then", ["resumed", "overtaken", "begun anew"])
def test_a_cancelled_job_leaves_the_old_version_and_goes_on_when_it_is_resumed(
    client: TestClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    embedder = state_of(app).galleries.own.embedder
    at_work, may_go_on = threading.Event(), threading.Event()
    infer = embedder.infer

    def slow(tensors: Any) -> Any:
        at_work.set()
        may_go_on.wait(30)
        return infer(tensors)

    monkeypatch.setattr(embedder, "infer", slow)
    with JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5):
        accepted = client.post(REINDEX, json={"source": "photos"})
        job_id = accepted.json()["id"]
        assert at_work.wait(30)
        assert client.delete(f"/v1/jobs/{job_id}").json()["cancel_requested"]
        may_go_on.set()
        job = wait_for_job(client, accepted)
    assert (job["state"], client.get("/v1/galleries/shoes").json()["n_items"]) == ("cancelled", 60)
    staged = state_of(app).settings.galleries_path / "shoes" / "staging" / job_id
    if then == "overtaken":
        other = client.post(REINDEX, json={"index": "SQ8"})
        answer = client.post(f"/v1/jobs/{job_id}/resume")
        assert (answer.status_code, answer.json()["job"]) == (409, other.json()["id"])
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
        return
    with JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5):
        if then == "begun anew":
            wait_for_job(client, client.post(REINDEX, json={"index": "SQ8"}))
            assert not staged.exists()
        resumed = client.post(f"/v1/jobs/{job_id}/resume")
        assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
        job = wait_for_job(client, resumed)
    assert (job["state"], job["result"]["is_active"], staged.exists()) == ("succeeded", True, False)
    assert (job["progress"]["skipped"] > 0) == (then == "resumed")
    assert client.post(f"/v1/jobs/{job_id}/resume").status_code == 422


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a\0b", "\0", "x" * 5000, "\ud800", "/".join(["x" * 200] * 40)])
def test_a_source_that_is_no_path_is_refused(client: TestClient, tmp_path: Path, name: str) -> None:
    for path in ("reindex", "calibrations"):
        field = "source" if path == "reindex" else "queries"
        body = json.dumps({field: name})
        headers = {"content-type": "application/json"}
        answer = client.post(f"/v1/admin/galleries/shoes/{path}", content=body, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:vicinal:problem:invalid-request")


@pytest.fixture
def give(app: FastAPI) -> Callable[..., dict[str, str]]:
    """Makes a key for the gallery `shoes` and some folders; headers with it."""

    def make(*folders: str) -> dict[str, str]:
        store = state_of(app).keyring.store
        _, key = store.create(f"key {len(store.all())}", SCOPES, galleries=["shoes"], folders=folders)
        return {"X-API-Key": key}

    return make


@pytest.mark.slow
@pytest.mark.parametrize("folders", [(), ("photos",)])
def test_a_key_of_a_gallery_reads_only_folders_that_were_given_to_it(
    client: TestClient, give: Callable[..., dict[str, str]], sources: Path, folders: tuple[str, ...]
) -> None:
    shutil.copytree(sources / "all", sources / "photosets")
    (sources / "photos" / "link").symlink_to(sources / "all")
    headers = give(*folders)
    for source in ("all", ".", "", "photos/../all", "photos/link", "photosets"):
        for path, body in (
            ("reindex", {"source": source}),
            ("reindex", {"activate": "manual", "comparison": {"queries": source}}),
            ("reindex", {"activate": "manual", "comparison": {"pictures": source}}),
            ("calibrations", {"target": "fpir=5%", "queries": source}),
            ("calibrations/any/check", {"queries": source}),
            ("comparisons", {"pipelines": {}, "queries": source}),
        ):
            answer = client.post(f"/v1/admin/galleries/shoes/{path}", json=body, headers=headers)
            assert answer.status_code == 422
            assert "outside of the folders that this key may read" in answer.json()["detail"], (path, source)


@pytest.mark.slow
def test_rows_and_links_in_a_given_folder_lead_nowhere_else(
    client: TestClient, give: Callable[..., dict[str, str]], sources: Path, worker: None
) -> None:
    inside = next((sources / "photos").rglob("*.png"))
    outside = sorted((sources / "all").rglob("*.png"))
    (sources / "photos" / "linked.png").symlink_to(outside[0])
    above = f"../{outside[1].relative_to(sources)}"
    rows = [inside.relative_to(sources / "photos"), "linked.png", above, outside[2]]
    manifest = sources / "photos" / "list.csv"
    manifest.write_text("path,label,id\n" + "".join(f"{path},a,new-{n}\n" for n, path in enumerate(rows)))
    client.headers.update(give("photos"))
    job = wait_for_job(client, client.post(REINDEX, json={"source": "photos/list.csv"}))
    assert (job["result"]["counts"], job["progress"]["failed"]) == ({"added": 1}, 3)
    reasons = {one["reason"] for one in job["progress"]["failures"]}
    assert reasons == {
        "its file does not lie below a folder that was given to the key, so that a job must not read it"
    }


def test_a_key_of_all_galleries_reads_all_unless_folders_are_named(
    client: TestClient, app: FastAPI, sources: Path
) -> None:
    store = state_of(app).keyring.store
    _, everything = store.create("all", SCOPES)
    _, some = store.create("some", SCOPES, folders=["photos"])
    path = "/v1/admin/galleries/{}/reindex"
    codes = [
        client.post(path.format(name), json={"source": "all"}, headers={"X-API-Key": key}).status_code
        for name, key in (("boots", everything), ("hats", some))
    ]
    assert codes == [202, 422]


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "status"), [("shoes", 202), ("other", 422), (None, 422)])
def test_a_fitted_bundle_is_for_those_who_may_see_its_gallery(
    data_dir: Path,
    make_settings: MakeSettings,
    write_bundle: Callable[..., ModelBundle],
    owner: str | None,
    status: int,
) -> None:
    settings = make_settings(data_dir, bundles_dir=data_dir / "bundles", run_jobs=False)
    client = TestClient(create_app(settings))
    made = write_bundle(data_dir / "bundles" / "fitted", seed=1).path
    if owner is not None:
        (made / "fitted-for.json").write_text(json.dumps(["a job", owner]))
    store = state_of(client.app).keyring.store
    _, key = store.create("mine", SCOPES, galleries=["shoes"])
    _, everything = store.create("all", SCOPES)
    answer = client.post(REINDEX, json={"bundle": "fitted"}, headers={"X-API-Key": key})
    assert answer.status_code == status
    if status == 202:
        client.delete(f"/v1/jobs/{answer.json()['id']}", headers={"X-API-Key": key})
    answer = client.post(REINDEX, json={"bundle": "fitted"}, headers={"X-API-Key": everything})
    assert answer.status_code == 202


def test_a_key_goes_on_with_no_job_that_reads_what_it_may_not(
    client: TestClient, app: FastAPI, give: Callable[..., dict[str, str]]
) -> None:
    """Neither by its source nor by what rows and links in it lead to."""
    _, everything = state_of(app).keyring.store.create("all", SCOPES)
    for source, folders in (("all", ["photos"]), ("photos", ["photos"]), ("photos", [])):
        answer = client.post(REINDEX, json={"source": source}, headers={"X-API-Key": everything})
        assert answer.status_code == 202
        path = f"/v1/jobs/{answer.json()['id']}"
        client.delete(path, headers={"X-API-Key": everything})
        assert client.post(f"{path}/resume", headers=give(*folders)).status_code == 422
        assert state_of(app).jobs.get(answer.json()["id"]).state == "cancelled"
