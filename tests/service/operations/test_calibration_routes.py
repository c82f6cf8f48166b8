"""Calibrations over HTTP: jobs, queries from outside, and dry runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import Calibrate, Encode, MakeSettings, View
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.measuring.records.store import CalibrationStore

ADMIN = "/v1/admin/galleries/shoes"
START = f"{ADMIN}/calibrations"
SEARCH = "/v1/galleries/shoes/search"


@pytest.fixture
def app(data_dir: Path, make_settings: MakeSettings, catalog: Path, tmp_path: Path) -> FastAPI:
    shutil.copytree(catalog, tmp_path / "sources" / "photos")
    return create_app(make_settings(data_dir, sources_dir=tmp_path / "sources"))


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


def threshold_of(client: TestClient) -> dict[str, Any]:
    return client.post(SEARCH, json={"item_id": "plain/view 0.png"}).json()["threshold"]


@pytest.mark.slow
def test_a_job_finds_the_threshold_that_searches_then_use(client: TestClient) -> None:
    job = wait_for_job(client, client.post(START, json={"target": "fpir=5%"}))
    assert (job["state"], job["problem"], job["kind"]) == ("succeeded", None, "calibrate")
    assert job["progress"]["stage"] == "keep"
    record = client.get(f"{START}/{job['id']}").json()
    assert (record["is_active"], record["state"], record["reason"]) == (True, "current", None)
    assert record["record"]["source"] == "leave_one_out"
    used = threshold_of(client)
    assert (used["calibration"], used["target"], used["state"]) == (job["id"], "FPIR 5 %", "current")
    assert used["value"] == job["result"]["threshold"] == record["record"]["threshold"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "is_active"), [({}, False), ({"activate": None}, False), ({"activate": True}, True)]
)
def test_what_promises_less_comes_into_force_only_when_that_is_asked_for(
    client: TestClient, asked: dict[str, Any], is_active: bool
) -> None:
    first = wait_for_job(client, client.post(START, json={"queries": "photos"}))
    assert (first["result"]["is_active"], first["result"]["objection"]) == (True, None)
    second = wait_for_job(client, client.post(START, json=asked))
    assert second["result"]["is_active"] is is_active
    said = second["result"]["objection"]
    assert said is None if is_active else "was measured with photos from outside" in said
    assert threshold_of(client)["calibration"] == (second if is_active else first)["id"]


@pytest.mark.slow
def test_queries_from_a_file_of_embeddings_and_from_the_request_are_the_same(
    client: TestClient, app: FastAPI, gallery: Gallery
) -> None:
    snapshot = gallery.snapshot()
    embeddings, labels = np.asarray(snapshot.embeddings), snapshot.labels.astype(str)
    np.savez(state_of(app).settings.sources_dir / "queries.npz", embeddings=embeddings, labels=labels)
    from_file = wait_for_job(client, client.post(START, json={"queries": "queries.npz"}))
    body = {"embeddings": embeddings.tolist(), "labels": labels.tolist()}
    from_request = wait_for_job(client, client.post(START, json=body))
    assert from_request["request"]["is_upload"]
    assert "embeddings" not in from_request["request"]
    assert from_file["result"]["threshold"] == from_request["result"]["threshold"]
    assert list((gallery.path / "calibrations" / "uploads").iterdir()) == []


@pytest.mark.slow
def test_queries_as_uploaded_images(
    client: TestClient,
    view: View,
    encode: Encode,
    gallery: Gallery,
) -> None:
    names = sorted(set(gallery.snapshot().labels))
    files = [("image", ("same name.png", encode(view(i % 10, 7 + i // 10)), "image/png")) for i in range(70)]
    asked = {"target": "fpir=10%", "activate": "false", "visits_by": "none"}
    data = {"label": [names[i % 10] for i in range(70)], **asked}
    job = wait_for_job(client, client.post(START, files=files, data=data))
    assert (job["state"], job["progress"]["done"], job["request"]["activate"]) == ("succeeded", 70, False)
    assert job["request"]["visits_by"] == "none"
    assert list((gallery.path / "calibrations" / "uploads").iterdir()) == []


def test_what_was_sent_with_a_job_that_never_begins_goes_with_it(
    client: TestClient, view: View, encode: Encode, gallery: Gallery
) -> None:
    files = [("image", ("a.png", encode(view(0, 7)), "image/png"))]
    job = client.post(START, files=files, data={"label": ["plain"], "target": "fpir=10%"}).json()
    uploads = gallery.path / "calibrations" / "uploads"
    assert [one.name for one in uploads.iterdir()] == [job["id"]]
    assert client.delete(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    assert list(uploads.iterdir()) == []


def slow_flips(scores: np.ndarray, current: float, candidate: float) -> dict[str, int]:
    gained = sum(1 for one in scores if one < current and one >= candidate)
    lost = sum(1 for one in scores if one >= current and one < candidate)
    return {"n": len(scores), "to_match": gained, "to_no_match": lost}


@pytest.mark.slow
@pytest.mark.parametrize("shift", [-0.1, 0.0, 0.1])
def test_a_dry_run_counts_rates_and_flips_on_the_stored_scores(
    client: TestClient, gallery: Gallery, calibrate: Calibrate, shift: float
) -> None:
    store = CalibrationStore(gallery.path)
    record = store.get(calibrate(gallery))
    tried = record.threshold + shift
    found = client.post(f"{START}/dry_run", json={"threshold": tried}).json()
    scores = store.scores(record)
    assert found["flips"]["searches"] == slow_flips(scores.top_scores, record.threshold, tried)
    without = scores.trials["fpir"].scores
    assert found["flips"]["without_mate"] == slow_flips(without, record.threshold, tried)
    assert found["tried"]["rates"]["fpir"]["rate"] == pytest.approx(np.mean(without >= tried))
    assert found["current"]["rates"]["fpir"] == json.loads(record.evidence.rates["fpir"].model_dump_json())
    assert (found["scores_of"], found["current"]["calibration"]) == (record.id, record.id)
    assert threshold_of(client)["value"] == record.threshold


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        {"target": "fpir=99%"},
        {"queries": "../elsewhere"},
        {"queries": "no such folder"},
        {"queries": "photos", "label_from": "words"},
        {"queries": "photos", "columns": "words"},
        {"rerank": "other"},
        {"labels": ["plain"]},
        {"embeddings": [[1.0]]},
        {"embeddings": [[1.0, 2.0]], "labels": ["plain"]},
        {"embeddings": [[1.0, 2.0]], "labels": ["plain"], "queries": "photos"},
        {"is_upload": True},
    ],
)
def test_what_cannot_work_never_waits(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post(START, json=body).status_code == 422
    assert client.get("/v1/jobs").json()["jobs"] == []
