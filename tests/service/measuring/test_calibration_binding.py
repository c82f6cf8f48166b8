"""A threshold of another pipeline, bundle or gallery is never used silently, and everyone is told why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.indexer.storage.files import write_sealed
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


def threshold_of(client: TestClient, gallery: str = "shoes", **options: object) -> dict[str, Any]:
    body = {"item_id": "plain/view 0.png", **options}
    answer = client.post(f"/v1/galleries/{gallery}/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["threshold"]


def readiness(client: TestClient) -> dict[str, Any]:
    return {one["name"]: one for one in client.get("/readyz").json()["galleries"]}


def test_the_threshold_of_another_pipeline_is_not_used(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    record_id = calibrate(gallery)
    assert threshold_of(client)["calibration"] == record_id
    other = threshold_of(client, rerank="contextual")
    assert (other["value"], other["source"], other["state"]) == (None, "none", "none")
    assert "'rerank=contextual k=8" in other["reason"]
    assert other["reason"].endswith("but one for 'rerank=off': calibrate again")


def test_the_threshold_of_another_bundle_is_not_used(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    store = CalibrationStore(gallery.calibrations_path)
    record = store.get(calibrate(gallery))
    store.add(record.model_copy(update={"id": "other", "bundle": "0123456789abcdef"}))
    other = threshold_of(client)
    assert (other["value"], other["state"]) == (None, "none")
    assert "made with bundle 0123456789abcdef" in other["reason"]
    assert record.bundle in other["reason"]


@pytest.mark.slow
def test_the_threshold_of_another_gallery_is_not_used(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    calibrate(gallery)
    shutil.copytree(gallery.path, gallery.path.parent / "boots")
    write_sealed(gallery.path.parent / "boots" / "identity.json", '{"identity": "another"}')
    other = threshold_of(client, "boots")
    assert (other["value"], other["state"]) == (None, "none")
    assert "made for another gallery, 'shoes'" in other["reason"]
    assert readiness(client)["boots"]["calibration_reason"] == other["reason"]


@pytest.mark.slow
def test_the_threshold_of_what_the_gallery_was_before_is_called_stale_everywhere(
    client: TestClient,
    gallery: Gallery,
    calibrate: Calibrate,
    catalog: Path,
    tmp_path: Path,
    embedder: Embedder,
) -> None:
    record_id = calibrate(gallery)
    for label in ("plain", "z-z"):
        shutil.copytree(catalog / label, tmp_path / "fewer" / label)
    items, name = read_source(tmp_path / "fewer"), source_name(catalog)
    index_items(gallery, items, embedder, source=name, delete=True, workers=1)
    stale = threshold_of(client)
    assert (stale["calibration"], stale["state"]) == (record_id, "stale")
    assert "80% of the items have changed" in stale["reason"]
    ready = readiness(client)["shoes"]
    assert (ready["calibration"], ready["calibration_reason"]) == ("stale", stale["reason"])


@pytest.mark.slow
def test_a_damaged_calibration_is_a_reason_for_not_being_ready(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    record_id = calibrate(gallery)
    (gallery.calibrations_path / f"{record_id}.json").write_text("{", encoding="utf-8")
    ready = client.get("/readyz")
    assert (ready.status_code, record_id in ready.json()["reasons"][0]) == (503, True)
