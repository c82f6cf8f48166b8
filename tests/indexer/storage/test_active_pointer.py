"""Active pointer: the newest move holds, and a damaged one is mended from the one before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.damaged_rows import damage_pointer
from vicinal.indexer.errors import GalleryBusyError, GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import Rows, state_of
from vicinal.indexer.state.schema import documents, moves
from vicinal.indexer.storage.active_pointer import Activation

DOCUMENT = {"kind": "note", "id": "", "at": 0.0, "content": "{}"}


@pytest.fixture
def gallery(galleries: Path, live_gallery: Gallery) -> Gallery:
    assert live_gallery.path.parent == galleries
    return live_gallery


def searched(gallery: Gallery) -> Activation:
    activation = gallery.activation
    assert activation is not None
    return activation


def move(gallery: Gallery, revision: int) -> None:
    before = searched(gallery)
    gallery.pointer.move_revision(before, revision, before.next_number + 1)


def test_every_move_is_read_as_it_was_written(gallery: Gallery) -> None:
    first = searched(gallery)
    move(gallery, 1)
    assert searched(gallery) == replace(first, revision=1, next_number=first.next_number + 1)
    gallery.pointer.activate(1, as_built=True, calibrated_as=1)
    again = searched(Gallery(gallery.path))
    assert (again.revision, again.calibrated_as, again.calibrated, again.last_version) == (2, 1, {}, 1)
    assert again.token != first.token
    assert gallery.pointer.changed_at is not None


def test_the_newest_hundred_moves_stay(live_gallery: Gallery) -> None:
    for revision in range(3, 110):
        move(live_gallery, revision)
    with state_of(live_gallery.path).reading() as rows:
        assert (rows.count(moves), max(rows.values(moves.c.revision))) == (100, 109)


def test_a_damaged_move_is_refused_until_a_version_is_put_in_force_again(gallery: Gallery) -> None:
    move(gallery, 1)
    first = searched(gallery)
    move(gallery, 2)
    damage_pointer(gallery.path)
    again = Gallery(gallery.path)
    with pytest.raises(GalleryError, match=r"row of 'moves'.*activate"):
        _ = again.activation
    assert again.pointer.exists
    assert again.pointer.changed_at is None
    again.pointer.activate(1)
    assert (searched(again).revision, searched(again).last_version) == (1, first.last_version)


def test_a_lost_move_is_not_passed_over(live_gallery: Gallery) -> None:
    """Nor one that an index does not lead to."""
    move(live_gallery, 1)
    with state_of(live_gallery.path).changing() as rows:
        rows.remove(moves, moves.c.number == 2)
    with pytest.raises(GalleryError, match="row of 'moves'"):
        _ = live_gallery.activation
    live_gallery.pointer.activate(1)
    assert searched(live_gallery).revision == 2


def test_what_is_noted_of_a_change_stands_or_falls_with_it(gallery: Gallery) -> None:
    before, state = searched(gallery), state_of(gallery.path)

    def note(rows: Rows) -> None:
        rows.add(documents, DOCUMENT)

    def fail(rows: Rows) -> None:
        note(rows)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gallery.pointer.move_revision(before, 1, 50, note=fail)
    with state.reading() as rows:
        assert not rows.has(documents, documents.c.kind == "note")
    assert searched(gallery) == before
    gallery.pointer.move_revision(before, 1, 50, note=note)
    with state.reading() as rows:
        assert rows.has(documents, documents.c.kind == "note")
    gallery.pointer.activate(1)
    with pytest.raises(GalleryBusyError, match="meanwhile"):
        gallery.pointer.move_revision(before, 2, 51)


def test_another_machine_that_was_faster_is_not_undone(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, faster = searched(gallery), Gallery(gallery.path)
    for name in ("read", "_last_whole"):
        monkeypatch.setattr(gallery.pointer, name, lambda: before)
    faster.pointer.activate(1)
    with pytest.raises(GalleryBusyError, match="meanwhile"):
        gallery.pointer.activate(1)
    assert not gallery.pointer.activate_if_unchanged(before, 1)
