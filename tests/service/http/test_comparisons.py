"""Comparisons over HTTP: versions with two bundles from the re-index to the roll back, and pipelines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
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
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.settings import Settings

SHOES = "/v1/galleries/shoes"
ADMIN = "/v1/admin/galleries/shoes"
COMPARISONS = f"{ADMIN}/comparisons"
REINDEX = f"{ADMIN}/reindex"
WAITING = {"bundle": "other", "source": "photos", "prefix": "", "activate": "manual"}
OFF, FOUR = Pipeline(rerank=Rerank(method="off")), Pipeline(rerank=Rerank(k=4, beta=0.1))


@pytest.fixture
def settings(
    tmp_path: Path,
    calibrated_base: Path,
    catalog: Path,
    make_settings: MakeSettings,
    write_bundle: Callable[..., ModelBundle],
) -> Settings:
    """A calibrated gallery, the bundle `other`, and the folder of pictures `photos`."""
    shutil.copytree(calibrated_base, tmp_path / "data")
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


@pytest.mark.slow
def test_a_version_is_compared_activated_and_rolled_back(
    client: TestClient, picture: Any, shoes: Gallery
) -> None:
    """Never an answer that joins the version of one bundle with the threshold of the other."""
    first, before = shoes.active_version, search(client, picture)
    job = finished(client, REINDEX, WAITING)
    assert (job["state"], job["problem"], job["result"]["is_active"]) == ("succeeded", None, False)
    version = job["result"]["version"]
    assert search(client, picture)["candidates"] == before["candidates"]
    assert search(client, picture)["threshold"]["calibration"] == before["threshold"]["calibration"]
    comparison = client.get(f"{COMPARISONS}/{job['id']}").json()
    new = comparison["variants"][1]
    assert comparison["id"] == job["id"]
    assert new["left_out"] == {}
    assert client.post(f"{SHOES}/versions/{version}/activate").status_code == 200
    after = search(client, picture)
    assert (after["bundle"], after["threshold"]["calibration"]) == (new["bundle"], new["calibration"]["id"])
    assert (after["threshold"]["state"], after["threshold"]["target"]) == ("current", "FPIR 5 %")
    assert client.post(f"{SHOES}/versions/{first}/activate").status_code == 200
    back = search(client, picture)
    assert (back["bundle"], back["matches"]) == (before["bundle"], before["matches"])
    assert back["threshold"]["calibration"] == before["threshold"]["calibration"]


@pytest.mark.slow
def test_a_version_that_is_no_worse_is_activated_by_itself(client: TestClient, shoes: Gallery) -> None:
    """With what changed while it was compared."""
    job = finished(client, REINDEX, {"index": "SQ8", "activate": "no_worse"})
    assert (job["state"], job["result"]["objection"], job["result"]["is_active"]) == ("succeeded", None, True)
    assert (shoes.active_version, shoes.activation.calibrated_as) == (job["result"]["version"],) * 2
    body = {"activate": "no_worse", "activate_if": {"needs_calibration": True}}
    assert "may be no_worse" in client.post(REINDEX, json=body).json()["detail"]


def searched(client: TestClient, **options: Any) -> tuple[str, str, float | None]:
    answer = client.post(f"{SHOES}/search", json={"item_id": "plain/view 0.png", **options}).json()
    return answer["pipeline"], answer["pipeline_source"], answer["threshold"]["value"]


def test_a_pipeline_and_its_threshold_come_into_force_at_once(client: TestClient, shoes: Gallery) -> None:
    before = searched(client)
    job = finished(client, COMPARISONS, {"target": "fpir=20%"})
    assert (job["state"], job["problem"]) == ("succeeded", None)
    comparison = client.get(f"{COMPARISONS}/{job['id']}").json()
    assert comparison["recommended"] == job["result"]["recommended"]
    assert searched(client) == before
    url = f"{COMPARISONS}/{job['id']}/activate"
    assert client.post(url, json={"variant": 7}).status_code == 422
    variants = comparison["variants"]
    number = next(i for i, one in enumerate(variants) if one["pipeline"]["rerank"]["k"] == 4)
    activated = client.post(url, json={"variant": number}).json()
    record = variants[number]["calibration"]
    assert (activated["pipeline"], activated["threshold"]) == (FOUR.key, record["threshold"])
    assert (activated["calibration"], activated["version"]) == (record["id"], shoes.active_version)
    assert searched(client) == (FOUR.key, "comparison", record["threshold"])
    assert searched(client, rerank="off") == (OFF.key, "request", before[2])
    (ready,) = client.get("/readyz").json()["galleries"]
    assert [ready[name] for name in ("pipeline", "pipeline_source", "calibration")] == [
        FOUR.key,
        "comparison",
        "current",
    ]
    assert client.get(f"{ADMIN}/calibrations/{record['id']}/report").status_code == 200
    assert client.get(f"{ADMIN}/pipeline").json() == activated
    assert client.delete(f"{ADMIN}/pipeline").json()["source"] == "settings"
    assert searched(client) == before
