"""A look for duplicates leaves out what a person called different."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.photos import write_album
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source
from vicinal.models.embedder import Embedder
from vicinal.service.answering.store import KeptSearch, SearchStore
from vicinal.service.duplicates.finding import find_duplicates
from vicinal.service.duplicates.record import DuplicateOptions, DuplicateRecord


def pairs_of(record: DuplicateRecord) -> set[frozenset[str]]:
    return {frozenset((group.kept.id, one.id)) for group in record.groups for one in group.copies}


@pytest.mark.slow
def test_a_pair_that_was_called_different_is_no_duplicate_again(tmp_path: Path, embedder: Embedder) -> None:
    write_album(tmp_path / "photos")
    gallery = Gallery(tmp_path / "galleries" / "album")
    index_items(gallery, read_source(tmp_path / "photos"), embedder, workers=1)
    view, store = GalleryReader(gallery).view(), SearchStore(gallery.path)
    before = find_duplicates(gallery, view, DuplicateOptions(), "before")
    (group, copy) = next(
        (group, one) for group in before.groups for one in group.copies if "exact" not in one.kinds
    )
    search = KeptSearch(
        # An item of the gallery that was searched for.
        embedding=view.vectors(view.positions([group.kept.id]))[0],
        bundle=view.snapshot.manifest.bundle,
        version=1,
        revision=1,
        pipeline="p",
        candidates=(),
        verdict=None,
        threshold=None,
        calibration=None,
    )
    store.keep([(search, None)], most=10, days=30.0)
    different = digests_of(gallery, view, [copy.id])
    number = store.answer(search.id, "wrong", item_id=copy.id, by="eve", different=different).number
    after = find_duplicates(gallery, view, DuplicateOptions(), "after")
    assert frozenset((group.kept.id, copy.id)) in pairs_of(before)
    assert frozenset((group.kept.id, copy.id)) not in pairs_of(after)
    store.take_back(number)
    assert pairs_of(find_duplicates(gallery, view, DuplicateOptions(), "again")) == pairs_of(before)
