"""Checks over HTTP: a job tries what a calibration promised, and nothing that searches use is changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import Calibrate, Encode, MakeSettings, View
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.measuring.records.store import CalibrationStore

ADMIN = "/v1/admin/galleries/shoes"


@pytest.fixture
def app(data_dir: Path, make_settings: MakeSettings, catalog: Path, tmp_path: Path) -> FastAPI:
    shutil.copytree(catalog, tmp_path / "sources" / "photos")
    return create_app(make_settings(data_dir, sources_dir=tmp_path / "sources"))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5):
        yield TestClient(app)
    state_of(app).jobs.queue.close()


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["type"].removeprefix("urn:vicinal:problem:"), body["detail"]


def files_of(gallery: Gallery) -> dict[str, bytes]:
    """All that lies beside the calibrations, but for checks."""
    files = (path for path in gallery.calibrations_path.rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in files if path.parent.name != "checks"}


@pytest.mark.slow
def test_a_job_tries_a_promise_with_photos_from_a_source_and_changes_nothing(
    client: TestClient, gallery: Gallery, record_id: str
) -> None:
    before = files_of(gallery)
    started = client.post(f"{ADMIN}/calibrations/{record_id}/check", json={"queries": "photos"})
    job = wait_for_job(client, started)
    assert (job["state"], job["kind"], job["progress"]["done"]) == ("succeeded", "check", 60)
    result = job["result"]
    assert (result["calibration"], result["verdict"]) == (record_id, "held")
    assert result["sentence"].startswith("What was promised holds so far: of 60 photos")
    assert files_of(gallery) == before
    shown = client.get(f"{ADMIN}/calibrations/{record_id}").json()
    assert (shown["last_check"], shown["is_active"]) == (result, True)


@pytest.mark.slow
def test_photos_come_as_a_form_and_are_gone_afterwards(
    client: TestClient, gallery: Gallery, record_id: str, view: View, encode: Encode
) -> None:
    files = [("image", ("same.png", encode(view(number, 7)), "image/png")) for number in (6, 7, 20, 21)]
    data = {"label": ["plain", "a+b", "absent", "gone"]}
    job = wait_for_job(client, client.post(f"{ADMIN}/calibrations/{record_id}/check", files=files, data=data))
    counts = {name: (one["n_trials"], one["n_labels"]) for name, one in job["result"]["rates"].items()}
    assert counts == {"fnir": (2, 2), "fpir": (2, 2)}
    assert list((gallery.calibrations_path / "uploads").iterdir()) == []


@pytest.mark.slow
def test_embeddings_with_labels_that_are_all_wrong_break_a_promise(
    client: TestClient, gallery: Gallery, record_id: str
) -> None:
    snapshot = gallery.snapshot()
    labels = [f"absent {one}" for one in snapshot.labels]
    body: dict[str, Any] = {"embeddings": np.asarray(snapshot.embeddings).tolist(), "labels": labels}
    job = wait_for_job(client, client.post(f"{ADMIN}/calibrations/{record_id}/check", json=body))
    assert (job["state"], job["result"]["verdict"]) == ("succeeded", "broken")
    assert job["result"]["rates"]["fpir"]["rate"] == 1.0


@pytest.mark.slow
def test_what_cannot_be_tried_is_refused_before_it_waits(client: TestClient, record_id: str) -> None:
    check = f"{ADMIN}/calibrations/{record_id}/check"
    status, kind, detail = problem(client.post(check))
    assert (status, kind, "new photos" in detail) == (422, "calibration-impossible", True)
    assert problem(client.post(check, json={"queries": "../photos"}))[:2] == (422, "invalid-request")
    body = {"queries": "photos", "embeddings": [[1.0]], "labels": ["a"]}
    assert "not both" in problem(client.post(check, json=body))[2]
    assert problem(client.post(f"{ADMIN}/calibrations/nowhere/check", json={"queries": "photos"}))[:2] == (
        404,
        "calibration-not-found",
    )


def test_a_threshold_set_by_hand_promises_nothing(client: TestClient) -> None:
    record = client.put(f"{ADMIN}/threshold", json={"threshold": 0.3}).json()["record"]
    answer = client.post(f"{ADMIN}/calibrations/{record['id']}/check", json={"queries": "photos"})
    status, kind, detail = problem(answer)
    assert (status, kind) == (422, "calibration-impossible")
    assert "set by hand" in detail


@pytest.mark.slow
def test_photos_and_labels_must_fit_each_other(
    client: TestClient, record_id: str, view: View, encode: Encode
) -> None:
    """Nothing is kept of what was refused."""
    check = f"{ADMIN}/calibrations/{record_id}/check"
    files = [("image", ("same.png", encode(view(6, 7)), "image/png"))] * 3
    answer = client.post(check, files=files, data={"label": ["plain", "plain"]})
    assert problem(answer) == (422, "invalid-request", "2 labels for 3 queries: send one each")
    body = {"embeddings": [[1.0, 0.0]], "labels": ["plain"]}
    status, _, detail = problem(client.post(check, json=body))
    assert (status, "2" in detail) == (422, True)
    assert client.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.slow
def test_live_changes_are_left_out_and_it_says_so(client: TestClient, record_id: str) -> None:
    check = f"{ADMIN}/calibrations/{record_id}/check"
    before = wait_for_job(client, client.post(check, json={"queries": "photos"}))["result"]
    assert client.delete("/v1/galleries/shoes/items/plain/view 0.png").status_code == 204
    after = wait_for_job(client, client.post(check, json={"queries": "photos"}))["result"]
    assert (before["warnings"], after["rates"]) == ([], before["rates"])
    (warning,) = after["warnings"]
    assert ("live changes were left out" in warning, "gallery compact shoes" in warning) == (True, True)


@pytest.mark.slow
def test_a_check_that_waits_keeps_another_job_of_the_gallery_out(app: FastAPI, record_id: str) -> None:
    """No worker runs."""
    client = TestClient(app)
    check = f"{ADMIN}/calibrations/{record_id}/check"
    first = client.post(check, json={"queries": "photos"}).json()["id"]
    second = client.post(check, json={"queries": "photos"})
    assert (*problem(second)[:2], second.json()["job"]) == (409, "job-conflict", first)
    state_of(app).jobs.queue.close()


@pytest.mark.slow
def test_the_newest_check_is_the_one_that_is_shown(
    client: TestClient, gallery: Gallery, record_id: str
) -> None:
    """A broken promise stays in force until somebody changes that, and its page says that it is broken."""
    snapshot = gallery.snapshot()
    labels = [f"absent {one}" for one in snapshot.labels]
    wrong: dict[str, Any] = {"embeddings": np.asarray(snapshot.embeddings).tolist(), "labels": labels}
    for body, verdict in (({"queries": "photos"}, "held"), (wrong, "broken")):
        wait_for_job(client, client.post(f"{ADMIN}/calibrations/{record_id}/check", json=body))
        shown = client.get(f"{ADMIN}/calibrations/{record_id}").json()
        assert (shown["last_check"]["verdict"], shown["is_active"]) == (verdict, True)


@pytest.mark.slow
def test_the_calibration_of_another_bundle_is_refused(
    client: TestClient, gallery: Gallery, record_id: str
) -> None:
    store = CalibrationStore(gallery.calibrations_path)
    changed = {"id": "other", "bundle": "0" * 16, "scores_sha256": None}
    store.add(store.get(record_id).model_copy(update=changed), activate=False)
    answer = client.post(f"{ADMIN}/calibrations/other/check", json={"queries": "photos"})
    assert problem(answer)[:2] == (409, "calibration-mismatch")


@pytest.mark.slow
def test_a_source_without_labels_fails_and_says_what_is_missing(
    client: TestClient, app: FastAPI, record_id: str, catalog: Path
) -> None:
    folder = state_of(app).settings.sources_dir / "flat"
    shutil.copytree(catalog / "plain", folder)
    started = client.post(f"{ADMIN}/calibrations/{record_id}/check", json={"queries": "flat"})
    job = wait_for_job(client, started)
    assert (job["state"], "6 of 6 queries" in job["problem"]) == ("failed", True)
    assert "a folder a label" in job["problem"]


@pytest.mark.slow
def test_a_check_that_cannot_be_read_is_none(client: TestClient, gallery: Gallery, record_id: str) -> None:
    (gallery.calibrations_path / "checks").mkdir()
    (gallery.calibrations_path / "checks" / f"{record_id}.json").write_text("{", encoding="utf-8")
    assert client.get(f"{ADMIN}/calibrations/{record_id}").json()["last_check"] is None
