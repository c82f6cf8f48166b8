"""Comparison of versions: each with its own bundle and threshold, and honest about what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import SourceItem, read_source, source_name
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.comparing.comparison import ComparisonPlan, compare
from vicinal.service.comparing.record import (
    Comparison,
    ComparisonRequest,
    objection,
)
from vicinal.service.comparing.store import put_in_force
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.pipeline import Pipeline, Rerank

pytestmark = pytest.mark.slow


@pytest.fixture
def calibrated(gallery: Gallery, calibrate: Calibrate) -> str:
    """Id of the gallery's calibration."""
    return calibrate(gallery)


@pytest.fixture
def other(tmp_path: Path, write_bundle: Callable[..., ModelBundle]) -> Embedder:
    return Embedder(write_bundle(tmp_path / "bundles" / "other", seed=1), device="cpu", threads=1)


@pytest.fixture
def make_version(gallery: Gallery, catalog: Path) -> Callable[..., int]:
    """Makes a version of some items alone that waits; the active one stays active."""

    def make(embedder: Embedder, items: list[SourceItem] | None = None) -> int:
        before = gallery.active_version
        listed, name = items or read_source(catalog), source_name(catalog)
        if not index_items(gallery, listed, embedder, source=name, delete=True, workers=1).is_new:
            index_items(gallery, None, embedder)
        made = gallery.active_version
        gallery.pointer.activate(before)
        return made

    return make


@pytest.fixture
def plan(
    gallery: Gallery, data_dir: Path, make_settings: MakeSettings, embedder: Embedder, tmp_path: Path
) -> ComparisonPlan:
    settings = make_settings(data_dir, bundles_dir=tmp_path / "bundles")
    return ComparisonPlan(gallery, ServedBundles(settings, embedder=embedder))


def compared(plan: ComparisonPlan, version: int, name: str = "one", **options: object) -> Comparison:
    request = ComparisonRequest.model_validate({"versions": (version,), **options})
    return compare(replace(plan, request=request), name)


def test_the_same_items_with_the_same_bundle_differ_in_nothing(
    plan: ComparisonPlan, calibrated: str, make_version: Callable[..., int], embedder: Embedder
) -> None:
    present, new = (found := compared(plan, make_version(embedder))).variants
    assert set(new.figures) == {"error", "fnir", "fpir", "hit_rate", "map_at_r", "auroc", "opis"}
    for figure in new.figures.values():
        assert (figure.difference, figure.low, figure.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    assert (new.flips["queries"].flipped.rate, new.flips["queries"].other_best) == (0.0, 0)
    assert new.calibration.threshold == present.calibration.threshold
    assert (present.calibration.id, new.calibration.id) == (calibrated, "one-1")
    assert present.opis_floor == new.opis_floor
    assert (found.n_queries, found.n_with_mate, found.n_labels) == (60, 60, 10)


def test_every_version_is_searched_with_its_own_bundle(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_version: Callable[..., int],
    other: Embedder,
) -> None:
    """What is counted is what searches of the version would answer."""
    version = make_version(other)
    new = compared(plan, version).variants[1]
    gallery.pointer.activate(version, calibrated_as=version)
    matcher = Matcher(gallery, other)
    ids = matcher.snapshot.item_table["id"].to_pylist()
    labels = dict(zip(ids, matcher.snapshot.labels, strict=True))
    answers = matcher.search(item_ids=ids, include_candidates=True)
    best = [(answer.matches + answer.candidates)[0] for answer in answers]
    hits = [labels[one.id] == labels[item] for one, item in zip(best, ids, strict=True)]
    assert new.figures["hit_rate"].value == pytest.approx(sum(hits) / len(hits))
    assert new.bundle == other.bundle.fingerprint


def test_what_became_of_items_is_told(
    plan: ComparisonPlan,
    calibrated: str,
    make_version: Callable[..., int],
    embedder: Embedder,
    catalog: Path,
) -> None:
    items = read_source(catalog)
    changed = [
        replace(items[0], path=items[7].path),
        replace(items[1], label="renamed"),
        *items[2:50],
        replace(items[50], id="new"),
    ]
    version = make_version(embedder, changed)
    found = compared(plan, version)
    # Of the common ones, that with another picture and that with another label are no queries.
    assert found.n_queries == 48
    assert any("holds other items" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("by_hand", "said"), [(False, "no threshold in force to take the target from"), (True, "set by hand")]
)
def test_a_target_is_never_guessed(
    plan: ComparisonPlan,
    gallery: Gallery,
    matcher: Matcher,
    make_version: Callable[..., int],
    embedder: Embedder,
    by_hand: bool,
    said: str,
) -> None:
    if by_hand:
        matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)
    version = make_version(embedder)
    new = compared(plan, version).variants[1]
    assert said in new.left_out["calibration"]
    assert {"error", "fnir"} & set(new.figures) == set()
    assert ("hit_rate" in new.figures, new.flips) == (True, {})
    assert said in str(objection(new))
    assert not CalibrationStore(gallery.path).has_own(version)


def test_a_threshold_of_another_bundle_is_never_used(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_version: Callable[..., int],
    other: Embedder,
) -> None:
    """The new one is active without a calibration; the one of the other bundle says nothing about it."""
    old, new = gallery.active_version, make_version(other)
    gallery.pointer.activate(new)
    found = compared(plan, old)
    present, before = found.variants
    assert present.calibration.id == "one-0"
    assert before.calibration.id == calibrated
    assert str(found.target) == "FPIR 5 %"


def test_versions_and_pipelines_are_tried_together_and_a_variant_comes_into_force_as_a_whole(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_version: Callable[..., int],
    other: Embedder,
) -> None:
    first, version = gallery.active_version, make_version(other)
    four = Pipeline(rerank=Rerank(k=4)).key
    found = compared(plan, version, pipelines=True)
    tried = [(one.version, one.pipeline.key) for one in found.variants]
    assert (tried[:2], len(tried)) == ([(first, "rerank=off"), (first, four)], 10)
    assert tried[5:7] == [(version, "rerank=off"), (version, four)]
    put_in_force(gallery, plan.bundles, found, 6)
    matcher = Matcher(gallery, other)
    threshold = found.variants[6].calibration.threshold
    assert (gallery.active_version, matcher.pipeline.key) == (version, four)
    assert matcher.threshold().value == threshold
    # With the version its own pipeline was calibrated too.
    assert matcher.threshold(Pipeline()).value == found.variants[5].calibration.threshold
    gallery.pointer.activate(first)
    assert matcher.pipeline_store.chosen().comparison == "one"
