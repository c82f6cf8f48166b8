"""Version comparison: each version with its own bundle and threshold, and honest about what is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import Calibrate, MakeSettings, Run
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem, read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.comparisons.compared_version import open_version
from vicinal.service.comparisons.version_comparison import ComparisonPlan, compare_versions
from vicinal.service.comparisons.version_record import ActivationConditions, ComparisonOptions
from vicinal.service.comparisons.version_store import latest_comparison, read_comparison, save_comparison
from vicinal.service.errors import ComparisonNotFoundError, ComparisonRecordError, RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import ActivePipelineFile, ChosenPipeline, Pipeline, Rerank
from vicinal.service.thresholds.store import CalibrationStore

pytestmark = pytest.mark.slow


@pytest.fixture
def calibrated(gallery: Gallery, calibrate: Calibrate) -> str:
    """Id of the gallery's calibration."""
    return calibrate(gallery)


@pytest.fixture
def other(tmp_path: Path, write_bundle: Callable[..., ModelBundle]) -> Embedder:
    return Embedder(write_bundle(tmp_path / "bundles" / "other", seed=1), device="cpu", threads=1)


@pytest.fixture
def make_candidate(gallery: Gallery, catalog: Path) -> Callable[..., int]:
    """Makes a version of some items that waits; the active one stays active."""

    def make(embedder: Embedder, items: list[SourceItem] | None = None) -> int:
        before = gallery.active_version
        index_items(gallery, items or read_source(catalog), embedder, workers=1)
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


def test_the_same_items_with_the_same_bundle_differ_in_nothing(
    plan: ComparisonPlan, calibrated: str, make_candidate: Callable[..., int], embedder: Embedder
) -> None:
    found = compare_versions(plan, make_candidate(embedder), "one")
    for figure in (found.hit_rate, found.map_at_r, found.fnir, found.opis):
        assert (figure.difference, figure.low, figure.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    assert (found.gallery_flips.flipped.rate, found.gallery_flips.other_best) == (0.0, 0)
    assert found.new.threshold == found.old.threshold
    assert found.calibration.calibration != calibrated
    assert found.opis.old_floor == found.opis.new_floor


def test_what_a_version_finds_is_what_a_search_would_find(
    plan: ComparisonPlan, gallery: Gallery, make_candidate: Callable[..., int], other: Embedder
) -> None:
    version = make_candidate(other)
    ids = ["plain/view 0.png", "a+b/view 3.png", "blé/view 5.png"]
    side = open_version(gallery, version, plan.bundles)
    found = side.leave_one_out(side.positions(ids), None, lambda _done, _total: None)
    gallery.pointer.activate(version)
    answers = Matcher(gallery, other).search(item_ids=ids, include_candidates=True)
    assert [answer.candidates[0].id for answer in answers] == found.best.tolist()
    assert [answer.top_score for answer in answers] == found.scores.tolist()
    assert found.n_mates.tolist() == [5, 5, 5]


def test_items_are_counted_by_what_became_of_them(
    plan: ComparisonPlan,
    calibrated: str,
    make_candidate: Callable[..., int],
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
    found = compare_versions(plan, make_candidate(embedder, changed), "one")
    counts = found.items
    assert (counts.both, counts.only_old, counts.only_new) == (50, 10, 1)
    assert (counts.other_image, counts.other_label) == (1, 1)
    # Of the common ones, that with another picture is no query.
    assert found.n_sampled == 49
    assert any("different items" in warning for warning in found.warnings)


def test_a_sample_is_drawn_by_its_seed(
    plan: ComparisonPlan, calibrated: str, make_candidate: Callable[..., int], other: Embedder
) -> None:
    version = make_candidate(other)
    rates = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        options = ComparisonOptions(max_queries=12, seed=seed)
        found = compare_versions(replace(plan, options=options), version, name)
        assert (found.n_sampled, found.options.seed) == (12, seed)
        rates.append((found.map_at_r, found.opis, found.hit_rate.n_labels))
    assert rates[0] == rates[1] != rates[2]


def test_without_labels_decisions_are_all_that_is_left(
    plan: ComparisonPlan,
    gallery: Gallery,
    matcher: Matcher,
    make_candidate: Callable[..., int],
    embedder: Embedder,
    catalog: Path,
) -> None:
    matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)
    bare = [replace(item, label=None) for item in read_source(catalog)]
    options = ComparisonOptions(target="fpir=5%")
    found = compare_versions(replace(plan, options=options), make_candidate(embedder, bare), "one")
    assert (found.hit_rate, found.map_at_r, found.fnir, found.opis) == (None, None, None, None)
    assert "no labels" in found.calibration.problem
    assert found.left_out["hit_rate"] == "no sampled item has a label and a mate in both"
    assert "no labels" in found.left_out["gallery_flips"]


@pytest.mark.parametrize(
    ("by_hand", "said"), [(False, "no threshold to take the target from"), (True, "set by hand")]
)
def test_a_target_is_never_guessed(
    plan: ComparisonPlan,
    gallery: Gallery,
    matcher: Matcher,
    make_candidate: Callable[..., int],
    embedder: Embedder,
    by_hand: bool,
    said: str,
) -> None:
    if by_hand:
        matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)
    conditions = ActivationConditions(needs_calibration=True)
    found = compare_versions(replace(plan, conditions=conditions), make_candidate(embedder), "one")
    assert said in found.calibration.problem
    assert (found.fnir, found.gallery_flips, found.decision.activate) == (None, None, False)
    assert found.hit_rate is not None
    assert not CalibrationStore(gallery.calibrations_path).has_own(found.new.version)


def test_a_threshold_of_another_bundle_is_never_used(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    """The candidate is active without a calibration; the one of the other bundle says nothing about it."""
    old, new = gallery.active_version, make_candidate(other)
    gallery.pointer.activate(new)
    found = compare_versions(plan, old, "one")
    assert (found.old.calibration, found.old.threshold) == (None, None)
    assert found.left_out["fnir"] == "the active version has no threshold"
    assert found.new.calibration == calibrated


def test_the_gallery_s_own_pipeline_is_compared_as_far_as_it_holds(
    plan: ComparisonPlan, gallery: Gallery, make_candidate: Callable[..., int], other: Embedder
) -> None:
    """A pipeline that was chosen with the old bundle says nothing of the candidate's."""
    ActivePipelineFile(gallery.calibrations_path).put_in_force(
        ChosenPipeline(
            pipeline=Pipeline(rerank=Rerank(method="off")),
            bundle=gallery.snapshot().manifest.bundle,
            comparison="chosen",
            calibration="chosen",
            at=datetime.now(UTC),
        )
    )
    found = compare_versions(plan, make_candidate(other), "one")
    assert (found.old.pipeline, found.new.pipeline) == ("rerank=off", Pipeline().key)


def test_without_the_old_bundle_pictures_are_left_out_and_said_so(
    plan: ComparisonPlan,
    gallery: Gallery,
    data_dir: Path,
    make_settings: MakeSettings,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
    catalog: Path,
) -> None:
    version = make_candidate(other)
    settings = make_settings(data_dir, bundle=other.bundle.path)
    lonely = replace(plan, bundles=ServedBundles(settings, embedder=other), queries=catalog)
    found = compare_versions(lonely, version, "one")
    assert (found.old.is_served, found.new.is_served, found.query_flips) == (False, True, None)
    assert "is not here" in found.left_out["query_flips"]
    assert any("searched as stored" in warning for warning in found.warnings)
    assert found.hit_rate.n_queries == 60
    assert found.calibration.calibration == "one"


def test_without_its_bundle_a_candidate_is_neither_calibrated_nor_activated(
    plan: ComparisonPlan,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
    tmp_path: Path,
) -> None:
    version = make_candidate(other)
    shutil.rmtree(tmp_path / "bundles")
    conditions = ActivationConditions(hit_rate_drop_at_most=1.0)
    found = compare_versions(replace(plan, conditions=conditions), version, "one")
    assert "is not here" in found.calibration.problem
    assert (found.new.is_served, found.decision.activate) == (False, False)


def test_pictures_that_cannot_be_used_are_told(
    plan: ComparisonPlan,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
    catalog: Path,
    tmp_path: Path,
) -> None:
    shutil.copytree(catalog / "plain", tmp_path / "queries")
    (tmp_path / "queries" / "broken.png").write_bytes(b"no image")
    found = compare_versions(replace(plan, queries=tmp_path / "queries"), make_candidate(other), "one")
    assert found.query_flips.n == 6
    assert "1 of 7 pictures in queries cannot be used" in found.warnings


def test_live_changes_of_the_active_version_are_told(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    version = make_candidate(other)
    remove_items(GalleryReader(gallery), ["plain/view 0.png"])
    found = compare_versions(plan, version, "one")
    assert (found.items.both, found.items.only_new) == (59, 1)
    assert any("live changes" in warning for warning in found.warnings)


def test_a_finished_comparison_is_given_back_and_never_changed(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    version = make_candidate(other)
    made = compare_versions(plan, version, "one")
    assert compare_versions(plan, version, "one") == made == latest_comparison(gallery, version)
    with pytest.raises(GalleryError, match="not changed"):
        save_comparison(gallery, made)


def test_an_attempt_after_a_death_uses_the_calibration_of_the_one_before(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    version = make_candidate(other)
    made = compare_versions(plan, version, "one")
    gallery.reports.comparisons(version)["one"].unlink()
    again = compare_versions(plan, version, "one")
    assert again.calibration == made.calibration
    assert again.model_copy(update={"created_at": made.created_at}) == made


def test_a_damaged_comparison_is_an_error(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    version = make_candidate(other)
    compare_versions(plan, version, "one")
    gallery.reports.comparisons(version)["one"].write_text("{}", encoding="utf-8")
    with pytest.raises(ComparisonRecordError, match="compare again"):
        read_comparison(gallery, version, "one")


def test_a_comparison_goes_with_its_version(
    plan: ComparisonPlan,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    other: Embedder,
) -> None:
    version = make_candidate(other)
    compare_versions(plan, version, "one")
    gallery.forget({version})
    assert gallery.reports.comparisons(version) == {}


def test_the_active_version_and_unknown_ones_are_refused(plan: ComparisonPlan, gallery: Gallery) -> None:
    with pytest.raises(RequestError, match="is the active one"):
        compare_versions(plan, gallery.active_version, "one")
    with pytest.raises(GalleryError, match="999"):
        compare_versions(plan, 999, "one")
    with pytest.raises(ComparisonNotFoundError, match="compare it first"):
        latest_comparison(gallery, gallery.active_version)


def test_the_command_line_compares_and_lists(
    run: Run,
    gallery: Gallery,
    calibrated: str,
    make_candidate: Callable[..., int],
    embedder: Embedder,
    catalog: Path,
) -> None:
    version = make_candidate(embedder)
    told = run("gallery", "compare", "shoes", version, "--queries", catalog).output
    assert all(
        text in told for text in ("hit rate (R@1)", "MAP@R", "FNIR", "OPIS", "Calibrated for FPIR 5 %")
    )
    assert "Of 60 queries 0.0 % are decided otherwise" in told
    made = json.loads(run("gallery", "compare", "shoes", version, "--json").stdout)
    assert (made["new"]["version"], made["n_sampled"]) == (version, 60)
    listed = json.loads(run("gallery", "versions", "shoes", "--json").stdout)
    assert [one["comparison"] for one in listed] == [made["summary"], None]
    run("gallery", "activate", "shoes", version)
    activation = gallery.activation
    assert (activation.version, activation.calibrated_as) == (version, version)
    assert np.isclose(Matcher(gallery, embedder).threshold().value, made["calibration"]["threshold"])
