"""Ready embeddings with a refiner: of the settings for a whole process, or kept by a version of a gallery."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import MakeSettings
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.jobs.source_addition import add_embeddings
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.views.refined_snapshot import refinements
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.versions import activate_version
from vicinal.service.settings import Settings

N, DIM = 60, 12
LABELS = [f"label {i // 6}" for i in range(N)]
RNG = np.random.default_rng(0)
VECTORS = np.repeat(RNG.normal(size=(N // 6, DIM)), 6, axis=0) + 0.3 * RNG.normal(size=(N, DIM))
QUERY = VECTORS[7] + 0.1

WriteSpace = Callable[..., ModelBundle]


def rows(first: int = 0, n: int = N) -> EmbeddingSource:
    chosen = slice(first, first + n)
    return EmbeddingSource.of_arrays(
        VECTORS[chosen], [f"item {i}" for i in range(N)][chosen], labels=LABELS[chosen]
    )


@pytest.fixture
def settings(tmp_path: Path, make_settings: MakeSettings) -> Settings:
    """A folder of bundles, and no bundle that embeds images."""
    return make_settings(tmp_path / "data", bundle=tmp_path / "none", bundles_dir=tmp_path / "bundles")


@pytest.fixture
def one(settings: Settings, refined_space: WriteSpace) -> ModelBundle:
    return refined_space("clip", DIM, settings.bundles_dir / "one")


@pytest.fixture
def other(settings: Settings, refined_space: WriteSpace) -> ModelBundle:
    return refined_space("clip", DIM, settings.bundles_dir / "other", seed=1, sides="query")


@pytest.fixture
def clips(settings: Settings) -> Gallery:
    """Indexed without a refiner."""
    gallery = Gallery(settings.gallery_path("clips"))
    index_items(gallery, rows(), ServedBundles(settings).resolve(gallery, rows(), space="clip").embedder)
    return gallery


def reindex(settings: Settings, gallery: Gallery, bundle: str | None = None) -> int:
    served = ServedBundles(settings).resolve(gallery, None, bundle=bundle)
    return index_items(gallery, None, served.embedder).version


def scores(settings: Settings, gallery: Gallery, query: FloatArray = QUERY) -> list[float]:
    found = ServedBundles(settings).matcher(gallery).search(embeddings=query, limit=N, threshold=0.0)
    return [match.score for match in found[0].matches]


def sides(bundles: ServedBundles, gallery: Gallery) -> str:
    return bundles.matcher(gallery).pipeline.refine.sides


@pytest.mark.slow
def test_a_version_keeps_the_refiner_that_it_was_indexed_with(
    settings: Settings, clips: Gallery, one: ModelBundle
) -> None:
    plain, version = scores(settings, clips), reindex(settings, clips, "one")
    refined = scores(settings, clips)
    assert refined != plain
    shutil.rmtree(one.path)
    assert scores(settings, clips) == refined
    # And so does what is made of it.
    assert reindex(settings, clips) == version + 1
    assert scores(settings, clips) == refined


@pytest.mark.slow
def test_added_items_and_compactions_are_refined_alike(
    settings: Settings, one: ModelBundle, clips: Gallery
) -> None:
    """Items that came later score, once they are compacted, as if they had been there."""
    reindex(settings, clips, "one")
    late = Gallery(settings.gallery_path("late"))
    source = rows(0, N - 6)
    index_items(late, source, ServedBundles(settings).resolve(late, source, space="clip").embedder)
    reindex(settings, late, "one")
    matcher, reader = ServedBundles(settings).matcher(late), GalleryReader(late)
    add_embeddings(reader, rows(N - 6, 6), matcher.embedder.bundle.manifest, name=None)
    assert len(scores(settings, late)) == N
    made = compact(reader).version
    assert refinements(late.snapshot_path(made)) == [(one.refiner_fingerprint, 3)]
    assert late.snapshot(made).manifest.refiner == one.refiner_fingerprint
    found, expected = (scores(settings, gallery, VECTORS[-1]) for gallery in (late, clips))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_damaged_refiner_is_told_and_the_version_before_is_searched(
    settings: Settings, clips: Gallery, one: ModelBundle
) -> None:
    first, plain = clips.active_version, scores(settings, clips)
    version = reindex(settings, clips, "one")
    (clips.bundle_path(one.refiner_fingerprint) / "refiner.npy").write_bytes(b"damaged")
    with pytest.raises(BundleMismatchError, match=r"its space cannot be used: bundle file '.*refiner.npy'"):
        ServedBundles(settings).matcher(clips)
    activate_version(clips, first, bundles=ServedBundles(settings))
    assert scores(settings, clips) == plain
    with pytest.raises(BundleMismatchError):
        activate_version(clips, version, bundles=ServedBundles(settings))
