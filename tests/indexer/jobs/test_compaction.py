"""Compaction: a fresh version of the same items, swapped in while changes go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import compaction
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import CompactionPolicy, compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.item_table import ItemTable
from vicinal.indexer.views.snapshot import write_snapshot
from vicinal.indexer.views.view import GalleryView

BUNDLE = "0123456789abcdef"
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]


@pytest.fixture
def reader(live_gallery: Gallery, rows: Rows, unit: Unit) -> GalleryReader:
    """A gallery of 40 items, of which three were removed, one replaced, one patched, and five added."""
    made = GalleryReader(live_gallery)
    new = rows(["7", *(f"new {i}" for i in range(5))], unit(6, seed=9), labels=["boots"] * 6)
    add_items(made, new, bundle=BUNDLE, conflict="replace")
    remove_items(made, ["3", "4", "new 1"])
    patch_items(made, {"8": Patch(label="sandals", metadata={"price": None})})
    return made


def items_of(view: GalleryView) -> list[dict[str, object]]:
    return [item for _, item in view.page(None, 1000)]


def test_the_new_version_holds_the_same_items_in_the_same_order(reader: GalleryReader) -> None:
    before = items_of(reader.view())
    vectors = reader.view().vectors(reader.view().positions([str(one["id"]) for one in before]))
    done = compact(reader)
    after = reader.view()
    assert done is not None
    assert (done.version, done.n_items, after.n_changes) == (after.snapshot.manifest.version, 42, 0)
    assert items_of(after) == before
    assert np.array_equal(after.snapshot.embeddings, vectors)
    assert after.n_labels == after.snapshot.manifest.n_labels == 6


def test_changes_go_on_while_it_runs_and_stand_beside_the_new_version(
    reader: GalleryReader, rows: Rows, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = GalleryReader(Gallery(reader.gallery.path))

    def write_slowly(*arguments: object, **options: object) -> object:
        add_items(other, rows(["late", "9"], unit(2, seed=5)), bundle=BUNDLE, conflict="replace")
        remove_items(other, ["new 2", "10"])
        patch_items(other, {"11": Patch(label="late")})
        return write_snapshot(*arguments, **options)

    monkeypatch.setattr(compaction, "write_snapshot", write_slowly)
    compact(reader)
    view = GalleryReader(Gallery(reader.gallery.path)).view()
    assert view.n_changes > 0
    assert items_of(view) == items_of(other.view()) == items_of(reader.view())
    assert [one["id"] for one in items_of(view)][-2:] == ["late", "9"]
    assert len(view) == 41
    assert len(view.snapshot) == 42
    monkeypatch.undo()
    compact(reader)
    assert items_of(reader.view()) == items_of(view)


def test_a_change_that_is_being_made_while_the_version_is_swapped_gets_in(
    reader: GalleryReader, rows: Rows, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun on the old version and acknowledged on the new one."""
    commit = ItemTable.change
    other = GalleryReader(Gallery(reader.gallery.path))

    def compact_in_between(*arguments: object) -> int:
        revision = commit(*arguments)
        monkeypatch.undo()
        compact(other)
        return revision

    monkeypatch.setattr(ItemTable, "change", compact_in_between)
    add_items(reader, rows(["late"], unit(1, seed=5)), bundle=BUNDLE)
    for view in (reader.view(), other.view(), GalleryReader(Gallery(reader.gallery.path)).view()):
        assert (len(view), items_of(view)[-1]["id"], len(view.segment)) == (43, "late", 1)


def test_a_version_that_was_activated_meanwhile_stays(
    reader: GalleryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery, first = reader.gallery, reader.gallery.active_version

    def write_slowly(*arguments: object, **options: object) -> object:
        gallery.pointer.activate(first, as_built=True)
        return write_snapshot(*arguments, **options)

    monkeypatch.setattr(compaction, "write_snapshot", write_slowly)
    with pytest.raises(GalleryBusyError, match="it stays as it is"):
        compact(reader)
    assert gallery.versions() == [first]
    assert [one["id"] for one in items_of(reader.view())] == [str(i) for i in range(40)]


@pytest.mark.parametrize(
    ("policy", "due"),
    [
        (CompactionPolicy(share=0.2, least=1), True),
        (CompactionPolicy(share=0.5, least=1), False),
        (CompactionPolicy(share=0.2, least=100), False),
        (CompactionPolicy(share=1.0, least=1, most=5), True),
    ],
)
def test_it_is_due_by_share_and_by_number(reader: GalleryReader, policy: CompactionPolicy, due: bool) -> None:
    """Eleven changes on forty items."""
    assert reader.view().n_changes == 11
    assert policy.is_due(reader.view()) == due
