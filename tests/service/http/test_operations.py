"""Liveness, readiness, metrics, documentation and the web page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.damaged_rows import damage_document, damage_pointer
from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state.schema import documents
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.problem_types import PREFIX
from vicinal.service.search.pipeline import Pipeline

SEARCH = "/v1/galleries/shoes/search"


@pytest.fixture
def fresh_client(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)), raise_server_exceptions=False)


def metric(client: TestClient, series: str) -> float:
    """Value of one series, 0 where it was never counted."""
    lines = client.get("/metrics").text.splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} ")]
    return values[0] if values else 0.0


def test_the_process_is_alive(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}


def test_ready_names_bundle_provider_and_galleries(client: TestClient, tiny_bundle: ModelBundle) -> None:
    client.get("/readyz")
    state_of(client.app).galleries.wait()  # type: ignore[arg-type]
    response = client.get("/readyz")
    assert response.status_code == 200
    files = response.json()["galleries"][0]["files"]
    assert (files["state"], files["checked_share"]) == ("whole", 1.0)
    assert response.json() == {
        "ready": True,
        "reasons": [],
        "bundle": tiny_bundle.fingerprint,
        "refiner": None,
        "refine": "off",
        "provider": "CPUExecutionProvider",
        "devices": {
            "decode": "cpu",
            "embed": "CPUExecutionProvider",
            "refine": "cpu",
            "search": "cpu",
            "rescore": "cpu",
            "rerank": "cpu",
        },
        "degraded": [],
        "other_bundles": [],
        "n_galleries": 1,
        "galleries": [
            {
                "name": "shoes",
                "problem": None,
                "lacks_engine": False,
                "bundle": tiny_bundle.fingerprint,
                "pipeline": Pipeline().key,
                "pipeline_source": "settings",
                "pipeline_reason": None,
                "calibration": "current",
                "calibration_reason": None,
                "drift": "unknown",
                "files": files,
            }
        ],
        "redis": None,
        "home": None,
        "limits": {
            "max_image_bytes": 300_000,
            "max_image_pixels": 40_000_000,
            "max_request_bytes": 500_000,
            "max_batch": 4,
            "max_embeddings": 1000,
            "max_limit": 200,
        },
    }


def test_not_ready_when_a_gallery_was_built_with_another_bundle(
    data_dir: Path,
    make_settings: MakeSettings,
    tmp_path: Path,
    tiny_bundle: ModelBundle,
    write_bundle: Callable[..., ModelBundle],
) -> None:
    other = write_bundle(tmp_path / "other", seed=1)
    client = TestClient(create_app(make_settings(data_dir, bundle=other.path)))
    response = client.get("/readyz")
    body = response.json()
    assert (response.status_code, body["ready"]) == (503, False)
    assert tiny_bundle.fingerprint in body["reasons"][0]
    assert other.fingerprint in body["reasons"][0]


def test_a_replica_is_ready_as_long_as_one_gallery_can_be_searched(
    data_dir: Path, make_settings: MakeSettings
) -> None:
    """Else one that is damaged in the home of all replicas would leave nobody to answer for the others."""
    galleries = data_dir / "galleries"
    shutil.copytree(galleries / "shoes", galleries / "hats")
    client = TestClient(create_app(make_settings(data_dir)))

    def ready() -> list[int]:
        return [client.get("/readyz", params={"galleries": one}).status_code for one in ("all", "any")]

    assert ready() == [200, 200]
    damage_pointer(galleries / "hats")
    assert ready() == [503, 200]
    told = client.get("/readyz?galleries=any").json()
    assert (told["ready"], len(told["reasons"])) == (True, 1)
    listed = client.get("/v1/galleries").json()
    assert ([one["name"] for one in listed["galleries"]], [*listed["problems"]]) == (["shoes"], ["hats"])
    damage_pointer(galleries / "shoes")
    assert ready() == [503, 503]
    assert client.get("/readyz?galleries=some").status_code == 422


def test_answers_are_counted_by_outcome(client: TestClient) -> None:
    series = 'vicinal_answers_total{gallery="shoes",outcome="%s"}'
    before = {outcome: metric(client, series % outcome) for outcome in ("match", "no_match", "undecided")}
    queries = [{"item_id": "plain/view 0.png"}] * 3
    client.post(f"{SEARCH}/batch", json={"queries": queries})
    client.post(SEARCH, json={"item_id": "plain/view 0.png", "threshold": 1.0})
    client.post(SEARCH, json={"item_id": "plain/view 0.png", "rerank": "contextual"})
    moved = {outcome: metric(client, series % outcome) - before[outcome] for outcome in before}
    assert moved == {"match": 3.0, "no_match": 1.0, "undecided": 1.0}


def test_an_unexpected_error_is_a_problem_without_its_details(
    fresh_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the secret path")

    monkeypatch.setattr("vicinal.service.measuring.matcher.Matcher.search", fail)
    response = fresh_client.post(SEARCH, json={"item_id": "plain/view 0.png"})
    assert response.status_code == 500
    assert response.json()["type"] == "urn:vicinal:problem:internal-error"
    assert "secret" not in response.text


def test_a_damaged_calibration_is_an_error_and_not_another_threshold(
    fresh_client: TestClient, gallery: Gallery, calibrate: Calibrate, caplog: pytest.LogCaptureFixture
) -> None:
    record_id = calibrate(gallery)
    damage_document(gallery.path, "calibration", documents.c.id == record_id)
    response = fresh_client.post(SEARCH, json={"item_id": "plain/view 0.png"})
    assert response.status_code == 500
    assert response.json()["type"] == "urn:vicinal:problem:calibration-damaged"
    (logged,) = (one for one in caplog.records if one.name.endswith("problems"))
    assert logged.getMessage() == f"calibration-damaged at {SEARCH}"
    assert record_id in str(logged.exc_info[1] if logged.exc_info else "")


def test_damaged_files_are_told_until_they_are_whole_again(
    fresh_client: TestClient, gallery: Gallery
) -> None:
    """A file of the table, which nothing can make again."""
    assert fresh_client.post(SEARCH, json={"item_id": "plain/view 0.png"}).status_code == 200
    galleries = state_of(fresh_client.app).galleries  # type: ignore[arg-type]
    galleries.wait()
    assert fresh_client.get("/readyz").json()["galleries"][0]["files"]["state"] == "whole"
    path = min((gallery.path / "items.lance" / "data").iterdir())
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    galleries.integrity._nanoseconds = 0
    fresh_client.get("/readyz")
    galleries.wait()
    galleries.integrity._nanoseconds = 10**15
    response = fresh_client.post(SEARCH, json={"item_id": "plain/view 0.png"})
    assert (response.status_code, response.json()["type"]) == (503, f"{PREFIX}gallery-files-damaged")
    assert (path.name in response.json()["detail"], "Retry-After" in response.headers) == (True, True)
    readiness = fresh_client.get("/readyz")
    (told,) = readiness.json()["galleries"]
    assert (readiness.status_code, told["files"]["state"], path.name in told["problem"]) == (
        503,
        "damaged",
        True,
    )
    path.write_bytes(intact)
    fresh_client.get("/readyz")
    galleries.wait()
    assert fresh_client.post(SEARCH, json={"item_id": "plain/view 0.png"}).status_code == 200
    assert fresh_client.get("/readyz").json()["galleries"][0]["files"]["state"] == "whole"
