"""A gallery's own refiner: kept with its versions, asked for anew when labels have changed."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.source_addition import add_embeddings
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.own_refiner import GalleryRefiner
from vicinal.service.local_gallery import LocalGallery
from vicinal.service.settings import Settings
from vicinal.training.refiner.own import OwnRefiner
from vicinal.training.refiner.validation import Gain, PairedDifference

DIM, SIZE = 16, 8
RNG = np.random.default_rng(0)
REGIONS = np.repeat(RNG.normal(size=(6, DIM)), 4, axis=0)
CENTERS = np.repeat(1.5 * REGIONS + 0.8 * RNG.normal(size=(24, DIM)), SIZE, axis=0)
VECTORS = (CENTERS + 0.9 * RNG.normal(size=CENTERS.shape)).astype(np.float32)
N = len(VECTORS)
LABELS = [f"label {i // SIZE}" for i in range(N)]


def rows(n: int = N, labels: list[str] | None = None) -> EmbeddingSource:
    ids = [f"item {i}" for i in range(n)]
    return EmbeddingSource.of_arrays(VECTORS[:n], ids, labels=(labels or LABELS)[:n])


@pytest.fixture
def settings(tmp_path: Path, make_settings: MakeSettings) -> Settings:
    return make_settings(tmp_path / "data", bundle=tmp_path / "none")


def index(settings: Settings, source: EmbeddingSource | None, **options: Any) -> Any:
    return LocalGallery("clips", ServedBundles(settings)).index(source, **options)


def sides(settings: Settings, name: str = "clips") -> str:
    bundles = ServedBundles(settings)
    return bundles.matcher(bundles.gallery(name)).pipeline.refine.sides


def gallery_of(settings: Settings, name: str = "clips") -> Gallery:
    return ServedBundles(settings).gallery(name)


@pytest.fixture
def clips(settings: Settings) -> Gallery:
    """Indexed with a refiner of its own."""
    made = index(settings, rows(), space="clip", refine="own")
    assert made.own_refiner["refiner"]
    assert made.own_refiner["text"].startswith("own refiner of ")
    return gallery_of(settings)


def test_searches_of_any_process_use_it_and_a_version_without_it_does_not(
    settings: Settings, clips: Gallery
) -> None:
    assert sides(settings) != "off"
    first = clips.active_version
    assert index(settings, rows(), refine="bundle").is_new
    assert sides(settings) == "off"
    clips.pointer.activate(first)
    assert sides(settings) != "off"


def test_live_changes_compactions_and_copies_keep_it(settings: Settings) -> None:
    index(settings, rows(N - 4), space="clip", refine="own")
    clips = gallery_of(settings)
    reader = GalleryReader(clips)
    bundles = ServedBundles(settings)
    manifest = bundles.matcher(clips).embedder.bundle.manifest
    late = EmbeddingSource.of_arrays(VECTORS[-4:], ["a", "b", "c", "d"], labels=LABELS[-4:])
    add_embeddings(reader, late, manifest, name=None)
    assert compact(reader) is not None
    assert sides(settings) != "off"
    archive = io.BytesIO()
    export_gallery(clips, archive)
    archive.seek(0)
    moved, _ = import_gallery(settings.galleries_path, archive, "moved")
    assert moved.refiner == clips.refiner
    found, expected = (
        bundles.matcher(one).search(embeddings=VECTORS[:3], limit=5, threshold=0.0) for one in (moved, clips)
    )
    assert [one.matches for one in found] == [one.matches for one in expected]


def test_labels_that_nothing_tells_leave_searches_as_they_are(settings: Settings) -> None:
    noise = EmbeddingSource.of_arrays(
        np.random.default_rng(1).normal(size=VECTORS.shape), [f"item {i}" for i in range(N)], labels=LABELS
    )
    made = index(settings, noise, space="clip", refine="own")
    assert made.own_refiner["refiner"] == ""
    assert "no gain to rely on" in made.own_refiner["text"]
    assert sides(settings) == "off"
    # They were asked, and are not asked again.
    assert not index(settings, noise, refine="own").is_new


@pytest.mark.parametrize("has_one", [False, True])
def test_a_gallery_of_images_keeps_it_beside_its_bundle(
    make_settings: MakeSettings,
    tmp_path: Path,
    catalog: Path,
    with_refiner: Callable[..., ModelBundle],
    tiny_bundle: ModelBundle,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_one: bool,
) -> None:
    """Whatever the catalog's few labels would say."""
    bundle = with_refiner() if has_one else tiny_bundle
    better = Gain(*3 * [PairedDifference(0.5, 0.4, -0.2, -0.1)])
    found = OwnRefiner(bundle, "both", better, better, {}, n_items=9, n_labels=3)
    monkeypatch.setattr(GalleryRefiner, "_problem", lambda *_: None)
    monkeypatch.setattr(GalleryRefiner, "_judged", lambda *_: found)
    settings = make_settings(tmp_path / "data", bundle=bundle.path)
    shop = LocalGallery("shop", ServedBundles(settings))
    made = shop.index(catalog, refine="own")
    assert made.own_refiner["refiner"] not in ("", bundle.refiner_fingerprint)
    for bundles in (shop.bundles, ServedBundles(settings)):
        matcher = bundles.matcher(bundles.gallery("shop"))
        assert matcher.pipeline.refine.refiner == made.own_refiner["refiner"]
        assert matcher.embedder.bundle.fingerprint == bundle.fingerprint
        photo = next(catalog.rglob("*.png"))
        assert matcher.search(images=[photo], threshold=0.0)[0].matches
    # The embeddings are those of the bundle: nothing is embedded again.
    plain = shop.index(catalog, refine="bundle")
    assert (plain.n_embedded, plain.is_new) == (0, True)
    assert sides(settings, "shop") == ("both" if has_one else "off")
    assert gallery_of(settings, "shop").refiner == ""
