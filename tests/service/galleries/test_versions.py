"""Calibrations of a version's own: in force with it at one moment, and gone with a roll back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.versions import prune_gallery
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def open_matcher(gallery: Gallery, embedder: Embedder) -> Callable[[], Matcher]:
    """Opens the present state of the gallery, as the next request does."""
    return lambda: Matcher(gallery, embedder)


@pytest.fixture
def old(matcher: Matcher) -> CalibrationRecord:
    """The gallery's threshold, in force."""
    return matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)


@pytest.fixture
def waiting(gallery: Gallery, old: CalibrationRecord) -> int:
    """Another version with the same rows, which waits."""
    graph = gallery.snapshot()
    rows = gallery.table.columns(gallery.activation.revision, ["id"])
    assert len(rows) == len(graph)
    reader = GalleryReader(gallery)
    before = gallery.activation
    remove_items(reader, ["plain/view 0.png"])
    made = compact(reader)
    gallery.pointer.activate(before.version, as_built=True)
    return made.version


@pytest.fixture
def prepared(gallery: Gallery, waiting: int, old: CalibrationRecord) -> CalibrationRecord:
    """A record that is the waiting version's own."""
    store = CalibrationStore(gallery.path)
    record = old.model_copy(update={"id": "own", "threshold": 0.75, "version": waiting})
    kept = store.add(record, activate=False)
    store.activate(kept, waiting)
    return kept


def test_a_version_and_its_calibration_come_into_force_together(
    gallery: Gallery, open_matcher: Callable[[], Matcher], waiting: int, prepared: CalibrationRecord
) -> None:
    before = open_matcher()
    gallery.pointer.activate(waiting, calibrated_as=waiting)
    assert open_matcher().threshold().value == 0.75
    # A request that began before keeps the old version with the old threshold.
    assert before.threshold().value == 0.5


def test_a_roll_back_brings_back_version_and_calibration(
    gallery: Gallery, open_matcher: Callable[[], Matcher], waiting: int, prepared: CalibrationRecord
) -> None:
    old_version = gallery.active_version
    gallery.pointer.activate(waiting, calibrated_as=waiting)
    gallery.pointer.activate(old_version)
    assert open_matcher().threshold().value == 0.5
    gallery.pointer.activate(waiting)
    assert open_matcher().threshold().value == 0.75


def test_live_changes_and_compactions_keep_the_calibration(
    gallery: Gallery, open_matcher: Callable[[], Matcher], waiting: int, prepared: CalibrationRecord
) -> None:
    gallery.pointer.activate(waiting, calibrated_as=waiting)
    reader = GalleryReader(gallery)
    remove_items(reader, ["plain/view 1.png"])
    assert open_matcher().threshold().value == 0.75
    compacted = compact(reader)
    assert gallery.active_version == compacted.version
    assert open_matcher().threshold().value == 0.75


def test_versions_that_prepared_calibrations_need_keep_their_rows(
    gallery: Gallery, waiting: int, prepared: CalibrationRecord, matcher: Matcher
) -> None:
    gallery.pointer.activate(waiting, calibrated_as=waiting)
    prune_gallery(gallery, RetentionPolicy(versions=1, days=0))
    assert gallery.n_common(waiting, waiting) == (59, 59)
