"""Checks over HTTP: a job tries what a calibration promised, and nothing that searches use is changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.types import Calibrate, MakeSettings
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of as state_of_gallery
from vicinal.indexer.state.schema import activations, attachments, documents
from vicinal.service.http.app import create_app

ADMIN = "/v1/admin/galleries/shoes"


@pytest.fixture
def app(data_dir: Path, make_settings: MakeSettings, catalog: Path, tmp_path: Path) -> FastAPI:
    shutil.copytree(catalog, tmp_path / "sources" / "photos")
    return create_app(make_settings(data_dir, sources_dir=tmp_path / "sources"))


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["type"].removeprefix("urn:vicinal:problem:"), body["detail"]


def rows_of(gallery: Gallery) -> list[object]:
    """All that is kept of calibrations, but for checks."""
    with state_of_gallery(gallery.path).reading() as rows:
        return [
            *rows.all(documents, documents.c.kind != "check"),
            *rows.all(attachments),
            *rows.all(activations),
        ]


@pytest.mark.slow
def test_a_job_tries_a_promise_with_photos_from_a_source_and_changes_nothing(
    client: TestClient, gallery: Gallery, record_id: str
) -> None:
    before = rows_of(gallery)
    started = client.post(f"{ADMIN}/calibrations/{record_id}/check", json={"queries": "photos"})
    job = wait_for_job(client, started)
    assert (job["state"], job["kind"], job["progress"]["done"]) == ("succeeded", "check", 60)
    result = job["result"]
    assert (result["calibration"], result["verdict"]) == (record_id, "held")
    assert result["sentence"].startswith("What was promised holds so far: of 60 photos")
    assert rows_of(gallery) == before
    shown = client.get(f"{ADMIN}/calibrations/{record_id}").json()
    assert (shown["last_check"], shown["is_active"]) == (result, True)


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
