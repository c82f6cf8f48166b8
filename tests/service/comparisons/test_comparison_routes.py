"""Comparisons over HTTP: blue and green with two bundles, from the re-index to the roll back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs import JobWorker
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

SHOES = "/v1/galleries/shoes"
ADMIN = "/v1/admin/galleries/shoes"
REINDEX = f"{ADMIN}/reindex"
GENEROUS = {"hit_rate_drop_at_most": 0.2, "fnir_rise_at_most": 0.3, "flipped_at_most": 0.5}


@pytest.fixture
def settings(
    tmp_path: Path,
    calibrated_dir: Path,
    catalog: Path,
    make_settings: MakeSettings,
    write_bundle: Callable[..., ModelBundle],
) -> Settings:
    """A calibrated gallery, the bundle `other`, and the folder of pictures `photos`."""
    shutil.copytree(calibrated_dir, tmp_path / "data")
    write_bundle(tmp_path / "bundles" / "other", seed=1)
    shutil.copytree(catalog, tmp_path / "sources" / "photos")
    return make_settings(
        tmp_path / "data", sources_dir=tmp_path / "sources", bundles_dir=tmp_path / "bundles"
    )


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(settings)


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


@pytest.fixture
def worker(app: FastAPI) -> Iterator[None]:
    with JobWorker(state_of(app).jobs, state_of(app).kinds.by_name(), heartbeat_seconds=0.5):
        yield
    state_of(app).jobs.queue.close()


@pytest.fixture
def shoes(settings: Settings) -> Gallery:
    return Gallery.open(settings.galleries_path / "shoes")


@pytest.fixture
def picture(view: View, encode: Encode) -> dict[str, tuple[str, bytes, str]]:
    """A form with a new picture of the third label."""
    return {"image": ("a.png", encode(view(2, 7)), "image/png")}


def finished(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Start a job, and give it when it is done."""
    return wait_for_job(client, client.post(path, json=body))


def search(client: TestClient, picture: Any) -> dict[str, Any]:
    answer = client.post(f"{SHOES}/search", files=picture)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_candidate_is_compared_activated_and_rolled_back(
    client: TestClient, worker: None, picture: Any, shoes: Gallery
) -> None:
    """Never an answer that joins the version of one bundle with the threshold of the other."""
    first, before = shoes.active_version, search(client, picture)
    job = finished(client, REINDEX, {"bundle": "other", "source": "photos", "activate": "manual"})
    assert (job["state"], job["problem"], job["result"]["is_active"]) == ("succeeded", None, False)
    version = job["result"]["version"]
    assert search(client, picture)["candidates"] == before["candidates"]
    assert search(client, picture)["threshold"]["calibration"] == before["threshold"]["calibration"]
    comparison = client.get(f"{ADMIN}/versions/{version}/comparison").json()
    assert (comparison["id"], comparison["items"]["both"]) == (job["id"], 60)
    assert (comparison["left_out"], comparison["decision"]) == ({}, None)
    assert client.post(f"{SHOES}/versions/{version}/activate").status_code == 200
    after = search(client, picture)
    assert (after["bundle"], after["threshold"]["calibration"]) == (comparison["new"]["bundle"], job["id"])
    assert (after["threshold"]["state"], after["threshold"]["target"]) == ("current", "FPIR 5 %")
    assert client.post(f"{SHOES}/versions/{first}/activate").status_code == 200
    back = search(client, picture)
    assert (back["bundle"], back["matches"]) == (before["bundle"], before["matches"])
    assert back["threshold"]["calibration"] == before["threshold"]["calibration"]


def test_a_candidate_that_holds_the_conditions_is_activated_with_its_calibration(
    client: TestClient, worker: None, picture: Any
) -> None:
    conditions = {**GENEROUS, "needs_calibration": True}
    body = {"bundle": "other", "source": "photos", "activate_if": conditions}
    job = finished(client, REINDEX, body)
    assert (job["state"], job["problem"], job["result"]["is_active"]) == ("succeeded", None, True)
    assert job["result"]["decision"]["reason"].startswith("activated: ")
    answer = search(client, picture)
    assert (answer["version"], answer["threshold"]["calibration"]) == (job["result"]["version"], job["id"])
    kept = client.get(f"{ADMIN}/versions/{answer['version']}/comparison").json()
    assert kept["decision"] == job["result"]["decision"]


def test_a_candidate_that_holds_them_not_waits_with_the_reason(
    client: TestClient, worker: None, shoes: Gallery
) -> None:
    first = shoes.active_version
    job = finished(client, REINDEX, {"index": "HNSW8", "activate_if": {"flipped_at_most": 0.01}})
    assert (job["state"], job["result"]["is_active"], shoes.active_version) == ("succeeded", False, first)
    decision = job["result"]["decision"]
    # Nothing flipped, but with ten labels that does not show that it is less than one in a hundred.
    assert decision["activate"] is False
    assert "above the 1 % allowed" in decision["reason"]


def test_live_changes_made_during_the_comparison_are_kept(
    client: TestClient, app: FastAPI, worker: None, monkeypatch: pytest.MonkeyPatch, shoes: Gallery
) -> None:
    """The version that is activated is not the compared one, but that with the changes."""
    import vicinal.service.tasks.reindex_job as module

    compare = module.run_comparison

    def changing(*arguments: Any) -> Any:
        made = compare(*arguments)
        assert client.delete(f"{SHOES}/items/plain/view 0.png").status_code == 204
        return made

    monkeypatch.setattr(module, "run_comparison", changing)
    job = finished(client, REINDEX, {"activate_if": {**GENEROUS, "needs_calibration": True}})
    assert (job["problem"], job["result"]["is_active"], job["result"]["n_items"]) == (None, True, 59)
    compared = client.get(f"{ADMIN}/versions/{job['result']['version']}/comparison")
    assert compared.status_code == 404
    body = client.get(SHOES).json()
    assert (body["n_items"], body["calibration"]["id"]) == (59, job["id"])


def test_a_version_is_compared_on_its_own_with_pictures_and_another_target(
    client: TestClient, worker: None, shoes: Gallery
) -> None:
    job = finished(client, REINDEX, {"bundle": "other", "source": "photos", "activate": "manual"})
    path = f"{ADMIN}/versions/{job['result']['version']}"
    body = {"queries": "photos", "target": "fnir=20%", "max_queries": 20}
    second = finished(client, f"{path}/compare", body)
    assert (second["state"], second["problem"]) == ("succeeded", None)
    comparison = client.get(f"{path}/comparison").json()
    assert (comparison["id"], comparison["n_sampled"]) == (second["id"], 20)
    assert comparison["query_flips"]["n"] == 60
    assert comparison["calibration"]["target"] == "FNIR 20 %"
    # Both are kept.
    assert list(shoes.reports.comparisons(job["result"]["version"])) == [job["id"], second["id"]]


def test_versions_tell_their_comparison_in_one_line(client: TestClient, worker: None) -> None:
    job = finished(client, REINDEX, {"bundle": "other", "source": "photos", "activate": "manual"})
    new, old = client.get(f"{SHOES}/versions").json()["versions"]
    assert old["comparison"] is None
    assert new["comparison"] == job["result"]["summary"]
    assert new["comparison"].startswith(f"against {old['version']}, R@1 ")


def test_what_was_never_compared_is_not_found(client: TestClient, shoes: Gallery) -> None:
    answer = client.get(f"{ADMIN}/versions/{shoes.active_version}/comparison")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (404, "comparison-not-found")
    answer = client.get(f"{ADMIN}/versions/999/comparison")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (404, "version-not-found")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"target": "fpir"}, 422),
        ({"max_queries": 0}, 422),
        ({"queries": "../data"}, 422),
        ({"color": 1}, 422),
    ],
)
def test_options_that_make_no_sense_are_refused(
    client: TestClient, shoes: Gallery, body: dict[str, Any], status: int
) -> None:
    path = f"{ADMIN}/versions/{shoes.active_version}/compare"
    assert client.post(path, json=body).status_code == status
    assert client.get("/v1/jobs").json() == {"jobs": []}


def test_the_active_version_is_not_compared_with_itself(
    client: TestClient, worker: None, shoes: Gallery
) -> None:
    job = finished(client, f"{ADMIN}/versions/{shoes.active_version}/compare", {})
    assert (job["state"], "is the active one" in job["problem"]) == ("failed", True)


@pytest.mark.parametrize(
    "body",
    [
        {"activate_if": {}},
        {"activate_if": {"flipped_at_most": 2}},
        {"activate_if": {"map_drop": 0.1}},
        {"activate_if": GENEROUS, "activate": "manual"},
    ],
)
def test_conditions_that_cannot_decide_are_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post(REINDEX, json=body).status_code == 422


def test_a_new_gallery_has_nothing_to_hold_conditions_against(client: TestClient) -> None:
    body = {"source": "photos", "activate_if": GENEROUS}
    assert client.post("/v1/admin/galleries/hats/reindex", json=body).status_code == 404


@pytest.mark.parametrize(("method", "path"), [("post", "compare"), ("get", "comparison")])
def test_comparisons_are_the_administrators(
    settings: Settings, make_settings: MakeSettings, method: str, path: str
) -> None:
    keys = {"writer": ("search", "write")}
    client = TestClient(
        create_app(make_settings(settings.data_dir, api_keys=keys)), headers={"X-API-Key": "writer"}
    )
    assert getattr(client, method)(f"{ADMIN}/versions/1/{path}").status_code == 403
