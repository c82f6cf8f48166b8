"""Maintenance: compactions in the background, and versions that calibrations still need."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest

from tests.service.types import Calibrate
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import retention
from vicinal.indexer.jobs.changes import Change, remove_items
from vicinal.indexer.jobs.compaction import CompactionPolicy
from vicinal.indexer.jobs.retention import RetentionPolicy
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.galleries import versions as versions_module
from vicinal.service.galleries.versions import Maintenance, prune_gallery
from vicinal.service.measuring.matcher import Matcher

SOON = CompactionPolicy(least=2, share=0.001)
NOTHING_OLD = RetentionPolicy(versions=1, days=0.0)


@pytest.fixture
def reader(gallery: Gallery) -> GalleryReader:
    return GalleryReader(gallery)


def remove(reader: GalleryReader, *numbers: int) -> Change:
    return remove_items(reader, [f"plain/view {number}.png" for number in numbers])


def test_a_gallery_is_compacted_when_it_is_due(reader: GalleryReader) -> None:
    maintenance = Maintenance(SOON, RetentionPolicy())
    remove(reader, 0)
    assert not maintenance.consider(reader)
    remove(reader, 1)
    assert maintenance.consider(reader)
    maintenance.wait()
    assert (reader.view().n_changes, len(reader.view())) == (0, 58)


def test_one_compaction_of_a_gallery_runs_at_a_time(
    reader: GalleryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    monkeypatch.setattr(versions_module, "compact", lambda _reader, **_: going_on.wait(30) and None)
    maintenance = Maintenance(SOON, RetentionPolicy())
    remove(reader, 0, 1)
    started = [maintenance.consider(reader), maintenance.consider(reader)]
    going_on.set()
    maintenance.wait()
    assert started == [True, False]


def test_a_failure_is_logged_and_the_gallery_goes_on(
    reader: GalleryReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_reader: GalleryReader, **_options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(versions_module, "compact", fail)
    maintenance = Maintenance(SOON, RetentionPolicy())
    remove(reader, 0, 1)
    with caplog.at_level(logging.ERROR):
        maintenance.consider(reader)
        maintenance.wait()
    assert "disk full" in caplog.text
    assert len(reader.view()) == 58


def test_a_gallery_that_is_busy_is_left_for_later(
    reader: GalleryReader, caplog: pytest.LogCaptureFixture
) -> None:
    maintenance = Maintenance(SOON, RetentionPolicy())
    remove(reader, 0, 1)
    with caplog.at_level(logging.INFO), Gallery(reader.gallery.path).compacting():
        maintenance.consider(reader)
        maintenance.wait()
    assert "is not compacted now" in caplog.text
    assert maintenance.consider(reader)
    maintenance.wait()
    assert reader.view().n_changes == 0


@pytest.mark.slow
def test_a_calibration_is_not_called_stale_because_its_version_was_pruned(
    reader: GalleryReader,
    embedder: Embedder,
    calibrate: Calibrate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "READER_GRACE", timedelta(0))
    gallery = reader.gallery
    calibrate(gallery)
    maintenance = Maintenance(SOON, NOTHING_OLD)
    first = gallery.active_version
    for numbers in ((0, 1), (2, 3)):
        remove(reader, *numbers)
        maintenance.consider(reader)
        maintenance.wait()
    assert first not in gallery.versions()
    answer = Matcher(gallery, embedder).search(item_ids=["x_y/view 0.png"])[0]
    assert (answer.threshold.state, answer.version) == ("current", gallery.active_version)


def test_many_live_changes_make_a_calibration_stale(
    reader: GalleryReader, embedder: Embedder, calibrate: Calibrate
) -> None:
    calibrate(reader.gallery)
    labels = ("plain", "x_y", "z-z")
    remove_items(reader, [f"{label}/view {number}.png" for label in labels[:2] for number in range(6)])
    matcher = Matcher(reader.gallery, embedder)
    assert matcher.search(item_ids=["z-z/view 0.png"])[0].threshold.state == "current"
    remove_items(reader, ["z-z/view 1.png"])
    matcher = matcher.at(reader.view())
    threshold = matcher.search(item_ids=["z-z/view 0.png"])[0].threshold
    assert (threshold.state, "22% of the items have changed" in str(threshold.reason)) == ("stale", True)


@pytest.mark.slow
def test_versions_of_a_damaged_calibration_are_left_alone(
    reader: GalleryReader, calibrate: Calibrate, caplog: pytest.LogCaptureFixture
) -> None:
    record = calibrate(reader.gallery)
    (reader.gallery.calibrations_path / f"{record}.json").write_text("{")
    with pytest.raises(ValueError, match="calibration"):
        prune_gallery(reader.gallery, NOTHING_OLD)
    maintenance = Maintenance(SOON, NOTHING_OLD)
    remove(reader, 0, 1)
    maintenance.consider(reader)
    maintenance.wait()
    assert len(reader.gallery.versions()) == 2
    assert "could not be compacted" in caplog.text
