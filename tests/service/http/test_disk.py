"""A server whose disk is full or read-only: searches go on, changes are refused in one line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.disks import full, mounted
from tests.service.types import Encode, MakeSettings, View
from vicinal.service.http.app import create_app

pytestmark = pytest.mark.slow

SHOES = "/v1/galleries/shoes"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "16m") as folder:
        yield folder


@pytest.fixture
def client(disk: Path, calibrated_base: Path, make_settings: MakeSettings) -> TestClient:
    """Client of a server on a small disk."""
    shutil.copytree(calibrated_base, disk / "data")
    return TestClient(create_app(make_settings(disk / "data")))


def searched(client: TestClient) -> object:
    answer = client.post(f"{SHOES}/search", json={"item_id": "plain/view 0.png"})
    assert answer.status_code == 200
    return [(match["id"], match["score"]) for match in answer.json()["matches"]]


def refused(client: TestClient, picture: bytes, *, removals: bool = True) -> None:
    answers = [
        client.post(f"{SHOES}/items", files={"image": ("new.png", picture, "image/png")}),
        client.post(f"{SHOES}/versions/1/activate"),
    ]
    if removals:
        answers.append(client.delete(f"{SHOES}/items/plain/view 5.png"))
    for answer in answers:
        assert (answer.status_code, answer.json()["type"]) == (507, "urn:vicinal:problem:storage-failed")
        assert "\n" not in answer.json()["detail"]


@pytest.fixture
def picture(view: View, encode: Encode) -> bytes:
    return encode(view(50, 0))


def test_a_full_disk_refuses_changes_and_answers_searches(
    client: TestClient, disk: Path, picture: bytes
) -> None:
    before = searched(client)
    with full(disk, 0):
        refused(client, picture, removals=False)
        assert searched(client) == before
        assert client.post("/v1/admin/galleries/shoes/reindex", json={}).status_code == 503
    assert client.delete(f"{SHOES}/items/plain/view 1.png").status_code == 204


def test_a_read_only_disk_refuses_changes_and_answers_searches(
    client: TestClient, disk: Path, picture: bytes
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert searched(client) is not None
    refused(client, picture)
    assert client.get("/readyz").status_code == 200
