"""Comparison store: records that never change, and the newest comparison of each version in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.damaged_rows import damage_document
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.files import identity_of
from vicinal.models.embedder import Embedder
from vicinal.service.comparing.comparison import ComparisonPlan, compare
from vicinal.service.comparing.record import Comparison, ComparisonRequest
from vicinal.service.comparing.store import ComparisonStore, put_in_force
from vicinal.service.errors import (
    CalibrationRecordError,
    ComparisonRecordError,
)
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.pipeline import Pipeline, PipelineStore, Rerank
from vicinal.service.settings import Settings

FOUR = Pipeline(rerank=Rerank(k=4))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, base_dir: Path, embedder: Embedder) -> Settings:
    root = tmp_path_factory.mktemp("kept") / "data"
    shutil.copytree(base_dir, root)
    return Settings(data_dir=root, bundle=embedder.bundle.path, device="cpu", threads=1)


@pytest.fixture(scope="module")
def made(settings: Settings, embedder: Embedder) -> Comparison:
    """The present pipeline and another one, kept in a gallery of its own."""
    gallery = Gallery.open(settings.galleries_path / "shoes")
    request = ComparisonRequest(target="fpir=20%")
    return compare(ComparisonPlan(gallery, ServedBundles(settings, embedder=embedder), request), "first")


@pytest.fixture
def gallery(gallery: Gallery, settings: Settings) -> Gallery:
    """The same gallery as the one that the comparison was made in, by its identity."""
    identity = json.dumps(identity_of(settings.galleries_path / "shoes"))
    with state_of(gallery.path).changing() as rows:
        rows.put(documents, {"kind": "identity", "id": "", "at": 0.0, "content": identity})
    return gallery


@pytest.fixture
def bundles(settings: Settings, embedder: Embedder) -> ServedBundles:
    return ServedBundles(settings, embedder=embedder)


def test_a_comparison_is_given_back_and_never_changed(
    settings: Settings, made: Comparison, bundles: ServedBundles
) -> None:
    gallery = Gallery.open(settings.galleries_path / "shoes")
    store = ComparisonStore(gallery.path)
    assert store.find("first") == made == compare(ComparisonPlan(gallery, bundles), "first")
    with pytest.raises(ComparisonRecordError, match="never changed"):
        store.keep(made)


def test_a_choice_does_not_hold_for_another_bundle(
    gallery: Gallery, embedder: Embedder, made: Comparison, bundles: ServedBundles
) -> None:
    put_in_force(gallery, bundles, made, 1)
    matcher = Matcher(gallery, embedder)
    assert (matcher.pipeline, matcher.active_pipeline.source) == (FOUR, "comparison")
    assert matcher.threshold().value == made.variants[1].calibration.threshold
    kept = PipelineStore(gallery.path)
    kept.put_in_force(kept.chosen().model_copy(update={"bundle": "0" * 16}))
    assert (matcher.pipeline, matcher.active_pipeline.source) == (Pipeline(), "settings")
    assert "compare again" in matcher.active_pipeline.reason
    damage_document(gallery.path, "pipeline")
    with pytest.raises(CalibrationRecordError, match="damaged"):
        matcher.search(item_ids=["plain/view 0.png"])


def test_a_comparison_of_a_former_release_with_pictures_is_read(made: Comparison) -> None:
    kept = made.model_dump(mode="json")
    kept["request"] |= {"pictures": "yesterday", "pipelines": None}
    kept["variants"][0]["calibration"]["scores_sha256"] = "0" * 64
    assert Comparison.model_validate(kept) == made
