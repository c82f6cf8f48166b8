"""Audit log: every change over HTTP leaves one line, whatever became of it; reading leaves none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.errors import StorageError
from vicinal.service.http.access import AuditLog, StrangerLog
from vicinal.service.http.app import create_app
from vicinal.service.keys import KeyStore
from vicinal.service.settings import SCOPES, Settings

SHOES = "/v1/galleries/shoes"


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(data_dir, run_jobs=False)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings)) as opened:
        yield opened


def lines(settings: Settings) -> list[dict[str, Any]]:
    path = settings.audit_path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_change_is_noted_with_who_what_and_from_where(
    client: TestClient, settings: Settings, view: View, encode: Encode
) -> None:
    record, key = KeyStore(settings.data_dir).create("shop", SCOPES)
    headers = {"authorization": f"Bearer {key}", "x-request-id": "r-1"}
    files = {"image": encode(view(50, 0))}
    client.post(f"{SHOES}/items", files=files, data={"id": "new"}, headers=headers)
    client.patch(f"{SHOES}/items/new", json={"label": "x"}, headers=headers)
    client.post(f"{SHOES}/items/delete", json={"ids": ["new", "plain/view 0.png"]}, headers=headers)
    client.delete(f"{SHOES}/items/absent", headers=headers)
    added, patched, removed, absent = lines(settings)
    assert added["who"] == f"shop {record.id}"
    assert (added["request_id"], added["client"], added["method"]) == ("r-1", "testclient", "POST")
    assert (added["route"], added["path"]) == ("/v1/galleries/{gallery}/items", f"{SHOES}/items")
    assert (added["items"], added["n_items"], added["status"]) == (["new"], 1, 200)
    assert (patched["path"], patched["status"]) == (f"{SHOES}/items/new", 200)
    assert (removed["items"], removed["status"]) == (["new", "plain/view 0.png"], 200)
    assert (absent["method"], absent["status"]) == ("DELETE", 404)
    assert key not in settings.audit_path.read_text()


def test_reading_and_searching_leave_no_line(client: TestClient, settings: Settings) -> None:
    """Negative control of the tests above."""
    client.get(f"{SHOES}/items")
    client.get("/v1/jobs")
    client.post(f"{SHOES}/search", json={"item_id": "plain/view 0.png"})
    assert lines(settings) == []


def test_what_comes_without_a_key_is_noted_in_a_file_of_its_own(
    client: TestClient, settings: Settings
) -> None:
    """No stranger pushes lines of others out."""
    store = KeyStore(settings.data_dir)
    record, revoked = store.create("shop", SCOPES)
    store.revoke("shop")
    for key in ("", "guess", revoked):
        assert client.get(f"{SHOES}/items", headers={"X-API-Key": key}).status_code == 401
    assert client.delete(f"{SHOES}/items/x", headers={"Origin": "https://evil.example"}).status_code == 403
    refused = settings.audit_path.with_name("refused.jsonl").read_text()
    noted = [json.loads(line) for line in refused.splitlines()]
    assert [(one["who"], one["status"]) for one in noted] == [
        ("nobody", 401),
        ("nobody", 401),
        (record.id, 401),
        ("a page of another origin", 403),
    ]
    assert (lines(settings), "guess" in refused, revoked in refused) == ([], False, False)


def test_a_change_that_fails_unexpectedly_is_noted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("indexer.gallery.Gallery.delete", "service.http.routes.galleries.set_alias"):
        monkeypatch.setattr(f"vicinal.{path}", lambda *_, **__: 1 / 0)
    client = TestClient(create_app(settings), raise_server_exceptions=False)
    asked = {
        ("DELETE", SHOES): {"params": {"confirm": "shoes"}},
        ("PUT", "/v1/aliases/live"): {"json": {"gallery": "shoes"}},
    }
    for (method, path), asked_with in asked.items():
        answer = client.request(method, path, **asked_with)
        assert answer.status_code == 500, answer.text
    noted = [(one["method"], one["path"], one["status"]) for one in lines(settings)]
    assert noted == [(*one, 500) for one in asked]


def test_of_a_flood_of_strangers_only_their_number_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 5.0
    monkeypatch.setattr("vicinal.service.http.access.time.monotonic", lambda: now)
    log = StrangerLog(tmp_path / "refused.jsonl")
    for number in range(100):
        log.append({"number": number})
    now = 6.0
    log.append({"number": 100})
    noted = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert noted == [*({"number": n} for n in range(20)), {"number": 100, "n_left_out": 80}]


def test_a_change_that_could_not_be_noted_is_not_begun(client: TestClient, settings: Settings) -> None:
    settings.audit_path.mkdir(parents=True)
    answer = client.delete(f"{SHOES}/items/plain/view 0.png")
    assert (answer.status_code, "audit log" in answer.json()["detail"]) == (507, True)
    assert client.get(f"{SHOES}/items/plain/view 0.png").status_code == 200


def test_a_line_that_is_lost_is_logged(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full: what frees room is answered, and the missing line is told."""

    def full(*_: object) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(AuditLog, "append", full)
    assert client.delete(f"{SHOES}/items/plain/view 0.png").status_code == 204
    assert "missing in the audit log" in caplog.text


def test_a_file_that_has_grown_gets_a_number_and_the_oldest_go(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log", most_bytes=5)
    for n in range(12):
        log.append({"n": n})
    files = {path.name for path in tmp_path.iterdir()} - {"log.lock"}
    assert files == {"log", *(f"log.{n}" for n in range(1, 9))}
    assert json.loads((tmp_path / "log.1").read_text()) == {"n": 10}
