"""Photo groups: photos of one visit are never each other's mates, candidates or context."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.calibrator.calibrator import Calibrator
from vicinal.service.calibrator.item_groups import PhotoGroups, group_name
from vicinal.service.calibrator.queries import LabelledQueries
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.scoring.pipeline import Pipeline, Rerank
from vicinal.service.scoring.scorer import Scorer

N_LABELS, N_VISITS, PER_VISIT = 20, 4, 4
FNIR = Target(rate="fnir", value=0.2)
PIPELINES = [Pipeline(rerank=Rerank(method="off")), Pipeline()]


def visits(seed: int = 0, visit_spread: float = 0.6):
    """Photos of labels on several visits; all photos of one visit to a label lie close together."""
    rng = np.random.default_rng(seed)
    centers = np.repeat(rng.normal(size=(N_LABELS, 12)), N_VISITS, axis=0)
    sessions = centers + visit_spread * rng.normal(size=centers.shape)
    photos = np.repeat(sessions, PER_VISIT, axis=0)
    photos = normalize(photos + 0.05 * rng.normal(size=photos.shape))
    labels = [f"label {i // (N_VISITS * PER_VISIT)}" for i in range(len(photos))]
    return photos, labels, [{"visit": i // PER_VISIT} for i in range(len(photos))]


@pytest.fixture
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    photos, labels, metadata = visits()
    return write_gallery(photos, labels, metadata=metadata)


def calibrate(snapshot: Snapshot, column: str | None, pipeline: Pipeline, **options) -> CalibrationRecord:
    groups = None if column is None else PhotoGroups.of(snapshot, column)
    queries = LabelledQueries.leave_one_out(snapshot, groups)
    return Calibrator(snapshot, pipeline, groups=groups, **options).measure(queries, FNIR).record


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
def test_rates_are_those_of_galleries_without_the_visit_of_the_query(
    snapshot: Snapshot, write_gallery: WriteGallery, pipeline: Pipeline
) -> None:
    """Each visit's gallery is really written without it and searched."""
    photos, labels, _ = visits()
    chosen = np.flatnonzero(np.arange(len(photos)) // PER_VISIT % 5 == 0)
    groups = PhotoGroups.of(snapshot, "visit")
    everyone = LabelledQueries.leave_one_out(snapshot, groups)
    some = LabelledQueries(photos[chosen], everyone.labels[chosen], chosen, groups=everyone.groups[chosen])
    record = (
        Calibrator(snapshot, pipeline, groups=groups).measure(some, Target(rate="fnir", value=0.5)).record
    )
    best, hits = [], []
    for row in chosen[::PER_VISIT]:
        own = np.arange(row, row + PER_VISIT)
        others = np.setdiff1d(np.arange(len(photos)), own)
        without = write_gallery(photos[others], [labels[i] for i in others])
        scored = Scorer(without, pipeline).score(photos[own], len(others))
        is_mate = np.array(labels)[others][scored.positions] == labels[row]
        best += np.where(is_mate, scored.scores, -np.inf).max(axis=1).tolist()
        hits += is_mate[:, 0].tolist()
    assert record.rates.hit_rate_1 == pytest.approx(np.mean(hits))
    assert record.rates.fnir == pytest.approx(np.mean(np.array(best) < record.threshold))
    assert 0.4 < record.rates.fnir <= 0.5


@pytest.mark.slow
def test_the_optimism_of_leaving_groups_out_is_measured(snapshot: Snapshot) -> None:
    """What was promised is what a calibration without groups says, and what is shown is far worse."""
    record, without = (calibrate(snapshot, column, PIPELINES[0]) for column in ("visit", None))
    found = record.evidence.grouping
    assert found.ungrouped_threshold == without.threshold
    assert found.promised["fnir"] == without.rates.fnir
    assert found.promised["hit_rate_1"] == without.rates.hit_rate_1 == 1.0
    assert found.shown["hit_rate_1"] == record.rates.hit_rate_1
    assert found.shown["fnir"] > 0.9
    assert record.threshold < without.threshold


@pytest.mark.slow
def test_queries_of_a_new_visit_show_what_groups_promise(snapshot: Snapshot) -> None:
    """The truth: a fifth visit to the same labels, which the gallery does not hold."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_LABELS, 12))
    later = np.random.default_rng(5)
    sessions = np.repeat(centers, 10, axis=0) + 0.6 * later.normal(size=(10 * N_LABELS, 12))
    photos = normalize(sessions + 0.05 * later.normal(size=sessions.shape))
    labels = np.repeat([f"label {i}" for i in range(N_LABELS)], 10)
    scored = Scorer(snapshot, PIPELINES[0]).score(photos, len(snapshot))
    is_mate = snapshot.labels[scored.positions] == labels[:, None]
    best = np.where(is_mate, scored.scores, -np.inf).max(axis=1)
    grouped, ungrouped = (calibrate(snapshot, column, PIPELINES[0]) for column in ("visit", None))
    interval = grouped.evidence.rates["fnir"]
    assert interval.low <= np.mean(best < grouped.threshold) <= interval.high
    assert np.mean(best < ungrouped.threshold) > ungrouped.evidence.rates["fnir"].high


@pytest.mark.slow
def test_photos_of_one_visit_are_no_negative_pairs_either(write_gallery: WriteGallery) -> None:
    photos, labels, _ = visits()
    whole = [{"visit": i % 2} for i in range(len(photos))]
    record = calibrate(write_gallery(photos, labels, metadata=whole), "visit", PIPELINES[0])
    n = len(photos)
    assert record.n_negative_pairs + record.n_positive_pairs == n * n // 2


def test_an_item_without_a_visit_is_a_group_of_its_own(write_gallery: WriteGallery) -> None:
    photos, labels, metadata = visits()
    for row in (0, 1, 2, 3):
        metadata[row] = [{}, {"visit": None}, {"visit": ""}, {"other": 3}][row]
    snapshot = write_gallery(photos, labels, metadata=metadata)
    found = calibrate(snapshot, "visit", PIPELINES[0]).evidence.grouping
    assert (found.n_groups, found.n_without_group) == (N_LABELS * N_VISITS + 3, 4)
    assert PhotoGroups.of(snapshot, "visit").members(None).tolist() == []


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, None), ("", None), (float("nan"), None), (3, "3"), (3.0, "3"), ("3", "3"), (True, "true")],
)
def test_equal_values_have_one_name(value: object, name: str | None) -> None:
    assert group_name(value) == name


def test_an_unknown_column_is_refused_with_those_that_there_are(snapshot: Snapshot) -> None:
    with pytest.raises(CalibrationError, match="'session' to group by; the gallery's columns: visit"):
        PhotoGroups.of(snapshot, "session")


@pytest.mark.slow
def test_near_duplicates_that_carry_the_result_are_warned_of(snapshot: Snapshot) -> None:
    def same(first, second):
        return np.asarray(first // PER_VISIT == second // PER_VISIT)

    record = calibrate(snapshot, None, PIPELINES[0], same_pictures=same)
    assert record.evidence.near_duplicates == 1.0
    assert any("for 100 % of the queries the best mate is almost the same" in one for one in record.warnings)
    grouped = calibrate(snapshot, "visit", PIPELINES[0], same_pictures=same)
    assert grouped.evidence.near_duplicates == 0.0
    assert not any("same picture" in one for one in grouped.warnings)


@pytest.mark.slow
def test_large_groups_are_warned_of_where_lists_can_run_out(write_gallery: WriteGallery) -> None:
    photos, labels, _ = visits()
    halves = [{"visit": i % 2} for i in range(len(photos))]
    snapshot = write_gallery(photos, labels, metadata=halves)
    assert any(
        "the largest group has 160 items" in one
        for one in calibrate(snapshot, "visit", PIPELINES[1]).warnings
    )
