"""Served bundles: a gallery is searched with the bundle of its version, whichever the settings name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.settings import Settings

SHOES = "/v1/galleries/shoes"


@pytest.fixture
def bundles_dir(tmp_path: Path, write_bundle: Callable[..., ModelBundle]) -> Path:
    """A folder with the bundle `other`, and with things that are none."""
    write_bundle(tmp_path / "bundles" / "other", seed=1)
    (tmp_path / "bundles" / "empty").mkdir()
    (tmp_path / "bundles" / "notes.txt").write_text("no bundle", encoding="utf-8")
    return tmp_path / "bundles"


@pytest.fixture
def settings(data_dir: Path, make_settings: MakeSettings, bundles_dir: Path) -> Settings:
    return make_settings(data_dir, bundles_dir=bundles_dir)


@pytest.fixture
def other(bundles_dir: Path) -> Embedder:
    return Embedder(ModelBundle.open(bundles_dir / "other"), device="cpu", threads=1)


@pytest.fixture
def switched(gallery: Gallery, catalog: Path, other: Embedder) -> tuple[int, int]:
    """The version before, and the active one, which the other bundle embedded."""
    before = gallery.active_version
    index_items(gallery, read_source(catalog), other, workers=1)
    return before, gallery.active_version


@pytest.fixture
def picture(view: View, encode: Encode) -> bytes:
    """A new picture of the third label."""
    return encode(view(2, 7))


def search(client: TestClient, picture: bytes) -> dict[str, object]:
    answer = client.post(f"{SHOES}/search", files={"image": ("a.png", picture, "image/png")})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_searches_go_on_through_switch_and_roll_back(
    settings: Settings, gallery: Gallery, catalog: Path, other: Embedder, picture: bytes
) -> None:
    client = TestClient(create_app(settings))
    before = search(client, picture)
    first = gallery.active_version
    index_items(gallery, read_source(catalog), other, workers=1)
    assert search(client, picture)["bundle"] == other.bundle.fingerprint
    assert client.post(f"{SHOES}/versions/{first}/activate").status_code == 200
    after = search(client, picture)
    assert (after["bundle"], after["candidates"]) == (before["bundle"], before["candidates"])


@pytest.mark.slow
def test_without_its_bundle_a_version_is_not_activated(
    data_dir: Path, make_settings: MakeSettings, gallery: Gallery, switched: tuple[int, int], picture: bytes
) -> None:
    before, after = switched
    gallery.pointer.activate(before)
    client = TestClient(create_app(make_settings(data_dir)))
    answer = client.post(f"{SHOES}/versions/{after}/activate")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "bundle-mismatch")
    assert "bundles_dir" in answer.json()["detail"]
    assert search(client, picture)["version"] == before
