"""Visits: photos of one visit are never each other's mates, candidates or context."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.duplicates.signatures import SIGNATURE_SIDE
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.measuring.visits import Visits, look_alikes
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

N_LABELS, N_VISITS, PER_VISIT = 20, 4, 4
FNIR = Target(rate="fnir", value=0.2)
PIPELINES = [Pipeline(rerank=Rerank(method="off")), CONTEXTUAL]


def photos_of_visits(seed: int = 0, visit_spread: float = 0.6):
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
    photos, labels, metadata = photos_of_visits()
    return write_gallery(photos, labels, metadata=metadata)


def calibrate(snapshot: Snapshot, column: str | None, pipeline: Pipeline, **options) -> CalibrationRecord:
    visits = None if column is None else Visits.of(snapshot, column)
    queries = LabelledQueries.leave_one_out(snapshot, visits)
    return Calibrator(snapshot, pipeline, visits=visits, **options).measure(queries, FNIR).record


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
def test_rates_are_those_of_galleries_without_the_visit_of_the_query(
    snapshot: Snapshot, write_gallery: WriteGallery, pipeline: Pipeline
) -> None:
    """Each visit's gallery is really written without it and searched."""
    photos, labels, _ = photos_of_visits()
    chosen = np.flatnonzero(np.arange(len(photos)) // PER_VISIT % 5 == 0)
    visits = Visits.of(snapshot, "visit")
    everyone = LabelledQueries.leave_one_out(snapshot, visits)
    some = LabelledQueries(photos[chosen], everyone.labels[chosen], chosen, visits=everyone.visits[chosen])
    record = (
        Calibrator(snapshot, pipeline, visits=visits).measure(some, Target(rate="fnir", value=0.5)).record
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
def test_queries_of_a_new_visit_show_what_visits_promise(snapshot: Snapshot) -> None:
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
    photos, labels, _ = photos_of_visits()
    whole = [{"visit": i % 2} for i in range(len(photos))]
    record = calibrate(write_gallery(photos, labels, metadata=whole), "visit", PIPELINES[0])
    n = len(photos)
    assert sum(record.evidence.rates[one].n_trials for one in ("far", "frr")) == n * n // 2


@pytest.mark.slow
def test_an_item_without_a_visit_is_a_visit_of_its_own(write_gallery: WriteGallery) -> None:
    photos, labels, metadata = photos_of_visits()
    for row in (0, 1, 2, 3):
        metadata[row] = [{}, {"visit": None}, {"visit": ""}, {"other": 3}][row]
    snapshot = write_gallery(photos, labels, metadata=metadata)
    found = calibrate(snapshot, "visit", PIPELINES[0]).evidence.visits
    assert found.n_visits == N_LABELS * N_VISITS + 3
    assert Visits.of(snapshot, "visit").members(None).tolist() == []


DAY = datetime(2026, 11, 2, 9)


def kept(n: int, **columns: list) -> pa.Table:
    """What an index keeps of n photos that have nothing in common, but for the columns that are given."""
    noise = np.random.default_rng(3).integers(0, 256, (n, 3 * SIGNATURE_SIDE**2)).astype(np.uint8)
    defaults = {
        "uri": [f"/photos/{chr(0x4E00 + i)}.jpg" for i in range(n)],
        "content_sha256": [i.to_bytes(32, "big") for i in range(n)],
        "signature": as_fixed_lists(noise),
        "taken_at": [None] * n,
        "camera": [None] * n,
    }
    arrays = {**defaults, **columns}
    return pa.table({**arrays, "taken_at": pa.array(arrays["taken_at"], pa.timestamp("s"))})


def found_parts(snapshot: Snapshot, table: pa.Table) -> list[set[int]]:
    """Positions of each visit with more than one photo."""
    names = Visits.found(snapshot, table).names.tolist()
    return [{i for i, one in enumerate(names) if one == name} for name in dict.fromkeys(names) if name]


@pytest.fixture
def six(write_gallery: WriteGallery) -> Snapshot:
    """Four photos of a label that are about equally alike, and two of another."""
    photos = normalize(np.eye(6, 8) + 0.5 + 0.01 * np.random.default_rng(1).normal(size=(6, 8)))
    return write_gallery(photos.astype(np.float32), ["mug"] * 4 + ["cup"] * 2)


def test_equal_files_of_a_label_are_one_visit_and_of_two_labels_are_not(six: Snapshot) -> None:
    contents = [b"a" * 32, b"b" * 32, b"a" * 32, b"c" * 32, b"a" * 32, b"d" * 32]
    assert found_parts(six, kept(6, content_sha256=contents)) == [{0, 2}]


def test_photos_within_ten_minutes_chain_to_a_visit(six: Snapshot) -> None:
    times = [DAY + timedelta(minutes=m) for m in (0, 9, 18, 40, 0, 5)]
    visits = Visits.found(six, kept(6, taken_at=times, camera=["c"] * 6))
    assert found_parts(six, kept(6, taken_at=times, camera=["c"] * 6)) == [{0, 1, 2}, {4, 5}]
    assert (visits.are_told, visits.joined) == (True, {"copies": 0, "times": 5, "series": 0})


def test_two_cameras_are_two_visits(six: Snapshot) -> None:
    cameras = ["a", "b", "a", "b", "a", "b"]
    assert found_parts(six, kept(6, taken_at=[DAY] * 6, camera=cameras)) == [{0, 2}, {1, 3}]


def test_numbered_files_are_joined_where_they_are_alike(write_gallery: WriteGallery) -> None:
    """1 and 2 are alike, as are 30 and 31; 2 and 4 are not, and 31 and 90 do not follow each other.

    Rows of a dataset are numbered by nobody's camera.
    """
    basis = np.eye(8, 12)
    rows = basis[[0, 0, 1, 2, 3, 3, 3, 4]]
    photos = normalize(rows + 0.3 + 0.01 * np.random.default_rng(1).normal(size=rows.shape))
    uris = [f"/photos/mug_{number:03}.jpg" for number in (1, 2, 4, 20, 30, 31, 90, 95)]
    snapshot = write_gallery(photos.astype(np.float32), ["mug"] * 8)
    assert found_parts(snapshot, kept(8, uri=uris)) == [{0, 1}, {4, 5}]
    rows = [f"dataset:///photos.parquet#image/{number}" for number in (1, 2, 4, 20, 30, 31, 90, 95)]
    assert found_parts(snapshot, kept(8, uri=rows)) == []
    few = write_gallery(photos[:6].astype(np.float32), ["mug"] * 6)
    assert found_parts(few, kept(6, uri=uris[:6])) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_visits_do_not_depend_on_the_order_of_the_photos(write_gallery: WriteGallery, seed: int) -> None:
    rng = np.random.default_rng(seed)
    photos, labels, _ = photos_of_visits(seed)
    times = [DAY + timedelta(minutes=int(m)) for m in rng.integers(0, 600, len(photos))]
    table = kept(len(photos), taken_at=times)
    order = rng.permutation(len(photos))
    one = Visits.found(write_gallery(photos, labels), table)
    other = Visits.found(write_gallery(photos[order], [labels[i] for i in order]), table.take(order))
    expected = {frozenset(one.members(name).tolist()) for name in one.names if name}
    assert {frozenset(order[other.members(name)].tolist()) for name in other.names if name} == expected


def unknown(snapshot: Snapshot) -> Visits:
    """Visits of which nothing is known."""
    return Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)


@pytest.mark.slow
def test_the_range_for_another_day_holds_what_a_new_visit_shows(snapshot: Snapshot) -> None:
    """Nobody says which photos were taken together; the range still holds the truth of a fifth visit."""
    visits = unknown(snapshot)
    queries = LabelledQueries.leave_one_out(snapshot, visits)
    target = Target(rate="fpir", value=0.05)
    record = Calibrator(snapshot, PIPELINES[0], visits=visits).measure(queries, target).record
    later = np.random.default_rng(5)
    centers = np.random.default_rng(0).normal(size=(N_LABELS, 12))
    sessions = np.repeat(centers, 10, axis=0) + 0.6 * later.normal(size=(10 * N_LABELS, 12))
    photos = normalize(sessions + 0.05 * later.normal(size=sessions.shape))
    labels = np.repeat([f"label {i}" for i in range(N_LABELS)], 10)
    scored = Scorer(snapshot, PIPELINES[0]).score(photos, len(snapshot))
    is_mate = snapshot.labels[scored.positions] == labels[:, None]
    missed = np.mean(np.where(is_mate, scored.scores, -np.inf).max(axis=1) < record.threshold)
    promised = promised_range(record, "fnir")
    assert promised.low <= missed <= promised.high
    assert missed > record.evidence.rates["fnir"].high


@pytest.mark.slow
def test_the_second_reading_is_that_of_a_slow_loop(snapshot: Snapshot) -> None:
    visits = unknown(snapshot)
    queries = LabelledQueries.leave_one_out(snapshot, visits)
    target = Target(rate="fpir", value=0.05)
    record = Calibrator(snapshot, PIPELINES[0], visits=visits).measure(queries, target).record
    numbers, cosines = look_alikes(snapshot, visits), snapshot.embeddings @ snapshot.embeddings.T
    scores = Scorer(snapshot, PIPELINES[0]).score(queries.embeddings, 1, items=queries.positions)
    assert scores is not None
    missed, strangers = [], []
    threshold = 1.0 + np.log(record.threshold) / 2.0
    for row, label in enumerate(snapshot.labels):
        mates = (snapshot.labels == label) & (numbers != numbers[row])
        if mates.any():
            missed.append(cosines[row, mates].max() < threshold)
        reached = set(snapshot.labels[(cosines[row] >= threshold) & (snapshot.labels != label)])
        strangers.append(len(reached) > 1)
    another = record.evidence.another_day
    assert another["fnir"].apart == pytest.approx(np.mean(missed), abs=1e-3)
    assert another["fpir"].apart == pytest.approx(np.mean(strangers), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("are_told", [True, False])
def test_a_range_is_stated_only_where_visits_are_not_told(snapshot: Snapshot, are_told: bool) -> None:
    visits = replace(unknown(snapshot), are_told=are_told)
    queries = LabelledQueries.leave_one_out(snapshot, visits)
    record = Calibrator(snapshot, PIPELINES[0], visits=visits).measure(queries, FNIR).record
    another_day = record.evidence.another_day
    assert [another_day[rate].apart is None for rate in ("fnir", "fpir")] == [are_told] * 2
    right, shown = another_day["precision"], record.evidence.rates["precision"]
    assert 0.0 <= right.low <= shown.low <= shown.high == right.high


def test_one_mate_more_is_bounded_as_a_slow_loop_says(write_gallery: WriteGallery) -> None:
    """Each mate of each query is left out in turn."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 6, 40)
    centers = np.repeat(rng.normal(size=(40, 12)), sizes, axis=0)
    photos = normalize(centers + 0.8 * rng.normal(size=centers.shape)).astype(np.float32)
    labels = np.repeat([f"label {i}" for i in range(40)], sizes)
    calibrator = Calibrator(write_gallery(photos, labels.tolist()), PIPELINES[0])
    record = calibrator.measure(calibrator.leave_one_out(), FNIR).record
    cosines = photos.astype(np.float64) @ photos.T.astype(np.float64)
    scores = np.exp(2.0 * cosines.astype(np.float32).astype(np.float64) - 2.0)
    now, less = [], []
    for row, label in enumerate(labels):
        mates = [i for i in np.flatnonzero(labels == label) if i != row]
        if len(mates) > 1:
            now.append(scores[row, mates].max() < record.threshold)
            rest = [[i for i in mates if i != out] for out in mates]
            less.append(np.mean([scores[row, some].max() < record.threshold for some in rest]))
    fnir = record.evidence.another_day["fnir"]
    assert fnir.low == pytest.approx(record.evidence.rates["fnir"].low * np.mean(now) / np.mean(less))
    assert fnir.high == record.evidence.rates["fnir"].high
