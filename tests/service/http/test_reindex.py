"""Re-index jobs over HTTP: accepted, refused, followed to the end, and nothing read that must not be."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings, View
from tests.waiting import wait_for_job
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving as serving_app
from vicinal.service.http.state import state_of
from vicinal.service.settings import SCOPES

REINDEX = "/v1/admin/galleries/shoes/reindex"


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


def test_a_new_source_is_taken_over_into_the_searched_version(client: TestClient) -> None:
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


def test_a_shard_is_a_source_and_no_way_out_of_the_sources(
    client: TestClient, sources: Path, tmp_path: Path, catalog: Path
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


def test_buckets_and_unasked_the_hub_are_read_by_no_job(client: TestClient, sources: Path) -> None:
    (sources / "list.csv").write_text("path\ns3://bucket/1.png", encoding="utf-8")
    job = wait_for_job(client, client.post(REINDEX, json={"source": "list.csv"}))
    assert (job["state"], "jobs read no buckets" in str(job["problem"])) == ("failed", True)
    refused = client.post(REINDEX, json={"source": "hf:shop/toys"})
    assert (refused.status_code, "VICINAL_ALLOW_HUB" in refused.json()["detail"]) == (422, True)


def test_a_second_job_on_a_gallery_is_refused_with_the_first_one_s_id(client: TestClient) -> None:
    first = client.post(REINDEX, json={"source": "photos"}).json()["id"]
    second = client.post(REINDEX, json={})
    assert (second.status_code, second.json()["job"]) == (409, first)
    assert second.json()["type"] == "urn:vicinal:problem:job-conflict"
    client.delete(f"/v1/jobs/{first}")
    assert client.post(REINDEX, json={}).status_code == 202


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


def test_a_manifest_and_a_link_cannot_point_elsewhere(
    client: TestClient,
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
def test_a_server_does_the_job_and_tells_of_it_to_the_end(app: FastAPI) -> None:
    with serving_app(app) as url, httpx.Client(base_url=url, timeout=60.0) as http:
        accepted = http.post(REINDEX, json={"source": "photos"})
        events = http.get(f"{accepted.headers['Location']}/events").text.split("\n\n")
        assert http.get("/v1/galleries/shoes").json()["n_items"] == 78
    last = dict(line.split(": ", 1) for line in events[-2].splitlines())
    assert (last["event"], json.loads(last["data"])["state"]) == ("end", "succeeded")


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


@pytest.mark.parametrize("then", ["resumed", "overtaken", "begun anew"])
def test_a_cancelled_job_leaves_the_old_version_and_goes_on_when_it_is_resumed(
    client: TestClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    embedder = state_of(app).galleries.own.embedder
    infer = embedder.infer
    accepted = client.post(REINDEX, json={"source": "photos"})
    job_id = accepted.json()["id"]

    def cancelled_meanwhile(tensors: Any) -> Any:
        assert client.delete(f"/v1/jobs/{job_id}").json()["cancel_requested"]
        return infer(tensors)

    with monkeypatch.context() as patch:
        patch.setattr(embedder, "infer", cancelled_meanwhile)
        job = wait_for_job(client, accepted)
    assert (job["state"], client.get("/v1/galleries/shoes").json()["n_items"]) == ("cancelled", 60)
    staged = state_of(app).settings.galleries_path / "shoes" / "staging" / job_id
    if then == "overtaken":
        other = client.post(REINDEX, json={"index": "SQ8"})
        answer = client.post(f"/v1/jobs/{job_id}/resume")
        assert (answer.status_code, answer.json()["job"]) == (409, other.json()["id"])
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
        return
    if then == "begun anew":
        wait_for_job(client, client.post(REINDEX, json={"index": "SQ8"}))
        assert not staged.exists()
    resumed = client.post(f"/v1/jobs/{job_id}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
    job = wait_for_job(client, resumed)
    assert (job["state"], job["result"]["is_active"], staged.exists()) == ("succeeded", True, False)
    assert (job["progress"]["skipped"] > 0) == (then == "resumed")
    assert client.post(f"/v1/jobs/{job_id}/resume").status_code == 422


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
            ("calibrations", {"target": "fpir=5%", "queries": source}),
            ("calibrations/any/check", {"queries": source}),
            ("comparisons", {"pipelines": True, "queries": source}),
        ):
            answer = client.post(f"/v1/admin/galleries/shoes/{path}", json=body, headers=headers)
            assert answer.status_code == 422
            assert "outside of the folders that this key may read" in answer.json()["detail"], (path, source)


def test_rows_and_links_in_a_given_folder_lead_nowhere_else(
    client: TestClient, give: Callable[..., dict[str, str]], sources: Path
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
