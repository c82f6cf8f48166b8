"""Maintenance: compactions in the background."""

from __future__ import annotations

import logging
import threading

import pytest

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Change, remove_items
from vicinal.indexer.jobs.compaction import CompactionPolicy
from vicinal.indexer.jobs.retention import RetentionPolicy
from vicinal.indexer.reader import GalleryReader
from vicinal.service.galleries import versions as versions_module
from vicinal.service.galleries.versions import Maintenance

SOON = CompactionPolicy(least=2, share=0.001)


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
