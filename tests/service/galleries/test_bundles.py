"""Served bundles: a gallery is searched with the bundle of its version, whichever the settings name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
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
def test_a_picture_is_embedded_with_the_version_s_bundle(
    settings: Settings, switched: tuple[int, int], other: Embedder, picture: bytes, gallery: Gallery
) -> None:
    answer = search(TestClient(create_app(settings)), picture)
    (query,) = other.embed([picture])
    similarities = np.asarray(gallery.snapshot().embeddings) @ query
    best = answer["candidates"][0]
    assert answer["bundle"] == other.bundle.fingerprint
    assert best["similarity"] == pytest.approx(float(similarities.max()), abs=1e-6)


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
def test_readiness_names_the_bundle_of_each_gallery(
    settings: Settings, switched: tuple[int, int], other: Embedder, embedder: Embedder
) -> None:
    answer = TestClient(create_app(settings)).get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["bundle"]) == (200, embedder.bundle.fingerprint)
    assert body["other_bundles"] == [other.bundle.fingerprint]
    assert [one["bundle"] for one in body["galleries"]] == [other.bundle.fingerprint]


def test_no_other_bundle_is_opened_before_a_gallery_needs_it(
    settings: Settings, data_dir: Path, embedder: Embedder
) -> None:
    body = TestClient(create_app(settings)).get("/readyz").json()
    assert (body["other_bundles"], body["galleries"][0]["bundle"]) == ([], embedder.bundle.fingerprint)


@pytest.mark.slow
def test_uploads_are_embedded_with_the_version_s_bundle(
    settings: Settings, switched: tuple[int, int], picture: bytes
) -> None:
    client = TestClient(create_app(settings))
    upload = {"image": ("new.png", picture, "image/png")}
    assert client.post(f"{SHOES}/items", files=upload, data={"id": "new.png"}).status_code == 200
    best = search(client, picture)["candidates"][0]
    assert (best["id"], best["similarity"]) == ("new.png", pytest.approx(1.0, abs=1e-6))


@pytest.mark.slow
def test_a_gallery_of_another_bundle_is_there_already(
    settings: Settings, switched: tuple[int, int], other: Embedder
) -> None:
    answer = TestClient(create_app(settings)).put(SHOES)
    assert (answer.status_code, answer.json()["bundle"]) == (200, other.bundle.fingerprint)


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


@pytest.mark.slow
def test_a_damaged_bundle_is_the_reason_that_is_told(
    settings: Settings, bundles_dir: Path, switched: tuple[int, int]
) -> None:
    (bundles_dir / "other" / BACKBONE_FILE).write_bytes(b"damaged")
    answer = TestClient(create_app(settings)).get("/readyz")
    assert answer.status_code == 503
    assert all(word in answer.json()["reasons"][0] for word in ("'other'", "SHA-256"))


@pytest.mark.slow
def test_a_bundle_is_found_by_its_fingerprint_and_opened_once(
    settings: Settings, gallery: Gallery, switched: tuple[int, int], embedder: Embedder
) -> None:
    bundles, manifest = ServedBundles(settings, embedder=embedder), gallery.snapshot(switched[1]).manifest
    assert bundles.others == []
    found = bundles.resolve(gallery, manifest)
    assert found is bundles.resolve(gallery, manifest)
    assert found is bundles.resolve(gallery, "images", bundle="other")
    assert bundles.others == [found]


def test_the_service_s_own_bundle_is_not_opened_again(
    settings: Settings, bundles_dir: Path, tiny_bundle: ModelBundle, embedder: Embedder, gallery: Gallery
) -> None:
    shutil.copytree(tiny_bundle.path, bundles_dir / "same")
    bundles = ServedBundles(settings, embedder=embedder)
    assert bundles.resolve(gallery, None, bundle="same").embedder is embedder
    assert bundles.resolve(gallery, gallery.snapshot().manifest).embedder is embedder


def test_an_unknown_bundle_is_refused_with_both_fingerprints(
    settings: Settings, gallery: Gallery, embedder: Embedder
) -> None:
    bundles = ServedBundles(settings, embedder=embedder)
    manifest = gallery.snapshot().manifest.model_copy(update={"bundle": "0123456789abcdef"})
    with pytest.raises(BundleMismatchError, match=f"0123456789abcdef.*{embedder.bundle.fingerprint}"):
        bundles.resolve(gallery, manifest)


def test_a_bundle_by_name_that_is_not_there_is_another_request_than_one_that_is_damaged(
    settings: Settings, gallery: Gallery, embedder: Embedder
) -> None:
    bundles = ServedBundles(settings, embedder=embedder)
    with pytest.raises(RequestError, match="there is no bundle 'broken' in bundles_dir"):
        bundles.resolve(gallery, "images", bundle="broken")
    path = settings.bundles_dir / "broken"
    path.mkdir(parents=True)
    for content in (None, b"{", (embedder.bundle.path / "bundle.json").read_bytes()):
        if content is not None:
            (path / "bundle.json").write_bytes(content)
        with pytest.raises(BundleError, match="broken"):
            bundles.resolve(gallery, "images", bundle="broken")


def test_bundles_by_name_need_a_folder(
    data_dir: Path, make_settings: MakeSettings, embedder: Embedder, gallery: Gallery
) -> None:
    with pytest.raises(RequestError, match="VICINAL_BUNDLES_DIR"):
        ServedBundles(make_settings(data_dir), embedder=embedder).resolve(gallery, "images", bundle="other")
