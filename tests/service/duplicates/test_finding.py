"""A look for duplicates leaves out what a person called different."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.photos import draw_photo, write_album
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source
from vicinal.models.decoding import decode_image
from vicinal.models.embedder import Embedder
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
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


def commented(jpeg: bytes, comment: bytes = b"another camera") -> bytes:
    """Other bytes of the same pixels."""
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2) + comment + jpeg[2:]


def darker(jpeg: bytes) -> bytes:
    stream = io.BytesIO()
    decode_image(jpeg).point(lambda value: int(0.97 * value)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(("change", "is_certain"), [(commented, True), (darker, False)])
def test_copies_of_the_same_pixels_need_no_threshold(
    tmp_path: Path, embedder: Embedder, change: Callable[[bytes], bytes], is_certain: bool
) -> None:
    (tmp_path / "photos").mkdir()
    for seed in range(12):
        draw_photo(seed).save(tmp_path / "photos" / f"{seed}.jpg")
    (tmp_path / "photos" / "b.jpg").write_bytes(change((tmp_path / "photos" / "1.jpg").read_bytes()))
    gallery = Gallery(tmp_path / "galleries" / "album")
    index_items(gallery, read_source(tmp_path / "photos"), embedder, workers=1)
    record = find_duplicates(gallery, GalleryReader(gallery).view(), DuplicateOptions(precision=0.998), "one")
    assert record.threshold is not None
    assert record.threshold.value is None
    assert pairs_of(record) == ({frozenset(("1.jpg", "b.jpg"))} if is_certain else set())
    assert ("but for those of the same pixels" in record.sentence) == is_certain
    assert {one.kinds for one in record.removable} == ({("same pixels",)} if is_certain else set())
