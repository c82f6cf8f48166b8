"""Duplicates over HTTP: a job, and its record page by page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.photos import write_album
from tests.service.types import MakeSettings
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of

pytestmark = pytest.mark.slow

DUPLICATES = "/v1/admin/galleries/album/duplicates"
ITEMS = "/v1/galleries/album/items"


@pytest.fixture(scope="module")
def album_dir(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> Path:
    """Data folder with the gallery `album` of 40 photos and their copies; not to be changed."""
    root = tmp_path_factory.mktemp("album")
    write_album(root / "photos")
    index_items(Gallery(root / "galleries" / "album"), read_source(root / "photos"), embedder, workers=1)
    return root


@pytest.fixture
def app(tmp_path: Path, album_dir: Path, make_settings: MakeSettings) -> FastAPI:
    shutil.copytree(album_dir / "galleries", tmp_path / "data" / "galleries")
    return create_app(make_settings(tmp_path / "data"))


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


@pytest.fixture(scope="module")
def looked_through(
    tmp_path_factory: pytest.TempPathFactory, album_dir: Path, make_settings: MakeSettings
) -> tuple[Path, str]:
    """Rows of the gallery after a job has looked for duplicates, and the id of their record."""
    data = tmp_path_factory.mktemp("looked through")
    shutil.copytree(album_dir / "galleries", data / "galleries")
    app = create_app(make_settings(data))
    client = TestClient(app)
    job = wait_for_job(client, client.post(DUPLICATES, json={}))
    assert (job["state"], job["problem"]) == ("succeeded", None)
    return data / "galleries" / "album" / "gallery.db", str(job["result"]["duplicates"])


@pytest.fixture
def record_id(app: FastAPI, looked_through: tuple[Path, str]) -> str:
    kept, found = looked_through
    shutil.copy(kept, state_of(app).settings.gallery_path("album"))
    return found


def test_a_job_finds_them_and_the_items_can_be_removed(client: TestClient, record_id: str) -> None:
    found = client.get(f"{DUPLICATES}/{record_id}").json()
    copies = [one["id"] for group in found["groups"] for one in group["copies"]]
    assert (found["id"], found["n_exact"], found["next"]) == (record_id, 10, None)
    assert len(copies) == found["n_exact"] + found["n_near"] >= 36
    assert all("x copy" in one for one in copies)
    assert client.get(ITEMS, params={"size": 1000}).json()["items"][79]
    assert client.post(f"{ITEMS}/delete", json={"ids": copies}).json()["n_items"] == 80 - len(copies)


def left(client: TestClient, record_id: str) -> set[frozenset[str]]:
    """Pairs of a record that are still called copies."""
    page = client.get(f"{DUPLICATES}/{record_id}", params={"left": True, "size": 1000}).json()
    assert page["n_groups"] == len(page["groups"])
    return {
        frozenset((group["kept"]["id"], one["id"])) for group in page["groups"] for one in group["copies"]
    }


def test_what_was_called_no_copy_is_none_at_once_and_in_the_next_look(
    client: TestClient, record_id: str
) -> None:
    before = left(client, record_id)
    group = next(
        one
        for one in client.get(f"{DUPLICATES}/{record_id}").json()["groups"]
        if one["copies"][0]["kinds"] != ["exact"]
    )
    kept, copy = group["kept"], group["copies"][0]
    assert kept["content"] != copy["content"]
    assert kept["added_at"].startswith("20")
    body = {"first": copy["id"], "others": [kept["id"]]}
    given = client.post(f"{DUPLICATES}/verdicts", json=body).json()
    assert (given["by"], given["others"]) == ("nobody named", [kept["id"]])
    assert client.get(f"{DUPLICATES}/verdicts").json() == [given]
    pair = frozenset((kept["id"], copy["id"]))
    assert before - left(client, record_id) == {pair}
    job = wait_for_job(client, client.post(DUPLICATES, json={}))
    assert pair not in left(client, job["result"]["duplicates"])
    assert client.delete(f"{DUPLICATES}/verdicts/{given['number']}").status_code == 204
    assert left(client, record_id) == before
    again = client.delete(f"{DUPLICATES}/verdicts/{given['number']}")
    assert (again.status_code, again.json()["type"]) == (404, "urn:vicinal:problem:verdict-not-found")
