"""A server whose PostgreSQL goes away in mid-flight: one gallery says so, the others go on, and nobody tells
where it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.postgres_server import PASSWORD, PostgresServer
from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_for_job, wait_until
from vicinal import open_gallery
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.service.doctor import _engines, _galleries
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

REINDEX = "/v1/admin/galleries/boots/reindex"
PAGES = ("/readyz", "/metrics", "/openapi.json", "/v1/galleries/boots", "/v1/galleries/boots/versions")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server to stop, kill and take tables from; it is up before every test."""
    made = PostgresServer()
    yield made
    made.remove()


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings, server: PostgresServer) -> Settings:
    made = make_settings(data_dir, postgres_url=server.url())
    copy_gallery(ServedBundles(made).gallery("shoes"), "boots")
    return made


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """Client of a server with two galleries of the same items; of one, PostgreSQL finds the candidates."""
    app = create_app(settings)
    state = state_of(app)
    state.galleries.bundles.engines._retry_seconds = 0.1
    client = TestClient(app)
    with JobWorker(state.jobs, state.kinds, heartbeat_seconds=0.5):
        job = wait_for_job(client, client.post(REINDEX, json={"index": "postgres"}))
    assert (job["state"], job["result"]["index"]) == ("succeeded", "postgres"), job
    yield client
    state.galleries.integrity.wait()
    state.galleries.bundles.engines.close()


@pytest.fixture
def query(view: View, encode: Encode) -> bytes:
    return encode(view(3, 8))


def search(client: TestClient, gallery: str, query: bytes) -> Any:
    return client.post(f"/v1/galleries/{gallery}/search", files={"image": ("q.png", query, "image/png")})


def found(answer: Any) -> list[tuple[str, float]]:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return [(one["id"], one["score"]) for one in body["matches"] + body["candidates"]]


def is_up(client: TestClient) -> float:
    (value,) = re.findall(r'^vicinal_engine_up{engine="postgres"} (\S+)$', client.get("/metrics").text, re.M)
    return float(value)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_gallery_whose_engine_is_away_says_so_while_others_go_on(
    client: TestClient, server: PostgresServer, settings: Settings, query: bytes, end: str
) -> None:
    before = found(search(client, "shoes", query))
    assert found(search(client, "boots", query)) == before
    assert (client.get("/readyz").status_code, is_up(client)) == (200, 1.0)
    getattr(server, end)()
    for _ in range(3):
        answer = search(client, "boots", query)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert answer.json()["type"] == "urn:vicinal:problem:engine-away"
        assert found(search(client, "shoes", query)) == before
    told = client.get("/readyz")
    assert (told.status_code, client.get("/readyz?galleries=any").status_code) == (503, 200)
    assert told.json()["reasons"] == ["PostgreSQL does not answer, or broke off the connection"]
    assert {one["name"]: one["problem"] is None for one in told.json()["galleries"]} == {
        "boots": False,
        "shoes": True,
    }
    assert is_up(client) == 0.0
    assert [one.state for one in _engines(settings)] == ["failed"]
    server.start()
    # Without a search that finds out.
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert (found(search(client, "boots", query)), is_up(client)) == (before, 1.0)
    assert [one.state for one in _engines(settings)] == ["ok"]


def test_a_table_that_postgres_lost_is_made_again_while_the_gallery_says_so(
    client: TestClient, server: PostgresServer, query: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.service.galleries.open_galleries._MENDING_NANOSECONDS", 0)
    before = found(search(client, "boots", query))
    state_of(client.app).galleries.integrity.wait()
    for (name,) in server.run("SELECT relname FROM pg_class WHERE relname LIKE 'vicinal%' AND relkind = 'r'"):
        server.run(f"DROP TABLE {name}")
    answer = search(client, "boots", query)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:vicinal:problem:engine-table-lost")
    wait_until(lambda: search(client, "boots", query).status_code == 200)
    assert found(search(client, "boots", query)) == before


def test_a_gallery_over_a_table_takes_no_items_says_what_changed_and_waits_for_its_engine(
    settings: Settings, server: PostgresServer, query: bytes
) -> None:
    server.run("CREATE TABLE team (id int PRIMARY KEY, label text, embedding vector(4))")
    server.run(
        "INSERT INTO team SELECT n, 'a', ARRAY[sin(n), cos(n), n % 3, 1]::vector FROM generate_series(1, 9) n"
    )
    opened = open_gallery(
        "team", **settings.model_dump(include={"data_dir", "bundle"}), postgres_url=server.url()
    )
    opened.index(f"{server.url()}?table=team", space="clip")
    opened.bundles.engines.close()
    client = TestClient(create_app(settings))
    state = state_of(client.app)
    state.galleries.bundles.engines._retry_seconds = 0.1

    def searched() -> Any:
        return client.post("/v1/galleries/team/search", json={"embedding": [0.0, 1.0, 0.0, 1.0]})

    before = found(searched())
    item = {"id": "new", "embedding": [1.0, 0.0, 0.0, 1.0]}
    added = client.post("/v1/galleries/team/items", json={"items": [item], "space": "clip"})
    removed = client.delete("/v1/galleries/team/items/7")
    for refused in (added, removed):
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:vicinal:problem:items-of-a-table")
    assert client.get("/v1/galleries/team").json()["table_change"] is None
    server.run("UPDATE team SET label = 'b' WHERE id < 3")
    # PostgreSQL counts what a connection changed a moment after it has closed.
    wait_until(lambda: state.galleries.opened("team").thresholds.watch.look())
    assert "table 'team' was changed in 2 rows" in client.get("/v1/galleries/team").json()["table_change"]
    assert 'vicinal_gallery_table_changed{gallery="team"} 1.0' in client.get("/metrics").text
    (doctor,) = [one for one in _galleries(settings) if one.name == "gallery team"]
    assert (doctor.state, "was changed in 2 rows" in doctor.says) == ("warning", True)
    server.stop()
    away = searched()
    assert (away.status_code, away.json()["type"]) == (503, "urn:vicinal:problem:engine-away")
    assert len(found(search(client, "shoes", query)))
    assert client.get("/readyz").status_code == 503
    server.start()
    wait_until(lambda: searched().status_code == 200)
    assert found(searched()) == before
    server.run("DROP TABLE team")
    gone = searched()
    assert (gone.status_code, gone.json()["type"]) == (503, "urn:vicinal:problem:engine-table-lost")
    state.galleries.integrity.wait()
    state.galleries.bundles.engines.close()


def test_an_index_on_an_engine_that_cannot_be_asked_is_refused_before_it_is_begun(
    client: TestClient, server: PostgresServer
) -> None:
    milvus = client.post(REINDEX, json={"index": "milvus"})
    assert milvus.status_code == 503
    assert "set VICINAL_MILVUS_URL" in milvus.json()["detail"]
    server.stop()
    refused = client.post(REINDEX, json={"index": "postgres"})
    server.start()
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:vicinal:problem:engine-away")


def test_where_an_engine_is_stands_in_no_log_answer_metric_and_file(
    client: TestClient,
    server: PostgresServer,
    settings: Settings,
    query: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [repr(settings), str(settings), settings.model_dump_json()]
    for gone in (False, True):
        if gone:
            server.stop()
        said += [client.get(path).text for path in PAGES]
        said.append(search(client, "boots", query).text)
        said.append(client.post(REINDEX, json={"index": "postgres"}).text)
        said += [finding.says for finding in _engines(settings)]
    server.start()
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    written = [path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file()]
    for secret in (PASSWORD, f"{server.address}:{server.port}", f"port {server.port}", server.url()):
        assert not [one for one in said if secret in one]
        assert not [one for one in written if secret.encode() in one]
