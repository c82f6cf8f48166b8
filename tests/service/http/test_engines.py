"""A server whose engine goes away: one gallery says so, the others go on, and nobody tells where it is."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.damaged_rows import damage_pointer
from tests.indexer.engines.fakes import ExactEngine
from tests.service.types import Encode, MakeSettings, View
from vicinal import open_gallery
from vicinal.indexer.errors import EngineAwayError
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.settings import Settings

REINDEX = "/v1/admin/galleries/boots/reindex"
PAGES = ("/readyz", "/metrics", "/openapi.json", "/v1/galleries/boots", "/v1/galleries/boots/versions")
PASSWORD, PLACE = "pass-word", "milvus.internal:19530"
AWAY = EngineAwayError("Milvus does not answer")


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir, milvus_url=f"http://root:{PASSWORD}@{PLACE}")


@pytest.fixture
def found_by() -> ExactEngine:
    return ExactEngine()


@pytest.fixture
def client(settings: Settings, found_by: ExactEngine) -> TestClient:
    """Client of a server with two galleries of the same items; of one, the engine finds the candidates."""
    copy_gallery(ServedBundles(settings).gallery("shoes"), "boots")
    opened = open_gallery("boots", **settings.model_dump(include={"data_dir", "bundle", "milvus_url"}))
    opened.bundles.engine._opened = found_by  # type: ignore[assignment]
    assert opened.index(index="milvus").index == "milvus"
    client = TestClient(create_app(settings))
    engine = state_of(client.app).galleries.bundles.engine
    engine._opened, engine._retry_seconds = found_by, 0.0  # type: ignore[assignment]
    return client


@pytest.fixture
def query(view: View, encode: Encode) -> bytes:
    return encode(view(3, 8))


def search(client: TestClient, gallery: str, query: bytes) -> Any:
    return client.post(f"/v1/galleries/{gallery}/search", files={"image": ("q.png", query, "image/png")})


def found(answer: Any) -> list[tuple[str, float]]:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return [(one["id"], one["score"]) for one in body["matches"] + body["candidates"]]


def metric(client: TestClient, name: str) -> float:
    (value,) = re.findall(rf'^{name}{{engine="milvus"}} (\S+)$', client.get("/metrics").text, re.M)
    return float(value)


def test_a_gallery_whose_engine_is_away_says_so_while_others_go_on(
    client: TestClient, found_by: ExactEngine, query: bytes
) -> None:
    before = found(search(client, "shoes", query))
    assert found(search(client, "boots", query)) == before
    assert (client.get("/readyz").status_code, metric(client, "vicinal_engine_up")) == (200, 1.0)
    found_by.away = AWAY
    for _ in range(3):
        answer = search(client, "boots", query)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert answer.json()["type"] == "urn:vicinal:problem:engine-away"
        assert found(search(client, "shoes", query)) == before
    told = client.get("/readyz")
    assert (told.status_code, client.get("/readyz?galleries=any").status_code) == (200, 200)
    assert (told.json()["reasons"], told.json()["degraded"]) == ([], [f"gallery 'boots': {AWAY}"])
    problems = {one["name"]: one["problem"] is None for one in told.json()["galleries"]}
    assert problems == {"boots": False, "shoes": True}
    assert metric(client, "vicinal_engine_up") == 0.0
    assert metric(client, "vicinal_engine_failures_total") >= 3
    found_by.away = None
    # Without a search that finds out.
    assert client.get("/readyz").status_code == 200
    assert (found(search(client, "boots", query)), metric(client, "vicinal_engine_up")) == (before, 1.0)


@pytest.mark.parametrize("damaged", [(), ("shoes",), ("boots",), ("shoes", "boots")])
def test_a_replica_is_ready_without_its_engine_and_not_without_its_files(
    client: TestClient, found_by: ExactEngine, settings: Settings, damaged: tuple[str, ...]
) -> None:
    found_by.away = AWAY
    for name in damaged:
        damage_pointer(settings.galleries_path / name)
    told = client.get("/readyz")
    assert (told.status_code, len(told.json()["reasons"])) == (503 if damaged else 200, len(damaged))


def test_a_table_that_its_engine_lost_is_made_again_while_the_gallery_says_so(
    client: TestClient, found_by: ExactEngine, query: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.service.galleries.open_galleries._MENDING_NANOSECONDS", 0)
    integrity = state_of(client.app).galleries.integrity
    before = found(search(client, "boots", query))
    integrity.wait()
    found_by.tables.clear()
    answer = search(client, "boots", query)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:vicinal:problem:engine-table-lost")
    integrity.wait()
    search(client, "boots", query)
    integrity.wait()
    assert found(search(client, "boots", query)) == before


def test_an_index_on_an_engine_that_cannot_be_asked_is_refused_before_it_is_begun(
    client: TestClient, found_by: ExactEngine
) -> None:
    found_by.away = AWAY
    refused = client.post(REINDEX, json={"index": "milvus"})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:vicinal:problem:engine-away")


def test_where_an_engine_is_stands_in_no_log_answer_metric_and_file(
    client: TestClient,
    found_by: ExactEngine,
    settings: Settings,
    query: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [repr(settings), str(settings), settings.model_dump_json()]
    for away in (None, AWAY):
        found_by.away = away
        said += [client.get(path).text for path in PAGES]
        said.append(search(client, "boots", query).text)
        said.append(client.post(REINDEX, json={"index": "milvus"}).text)
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    written = [path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file()]
    for secret in (PASSWORD, PLACE):
        assert not [one for one in said if secret in one]
        assert not [one for one in written if secret.encode() in one]
