"""Items set aside: found by nothing, whole on the disk, and back as they were."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError, ItemExistsError, ItemNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import set_aside as module
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.set_aside import (
    bring_back,
    find_aside,
    listed_aside,
    set_aside,
    stand_ins,
    thumbnail_aside,
)
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import attachments, removals
from vicinal.indexer.storage import active_pointer

BUNDLE = "0123456789abcdef"
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]
WHY = {"reason": "it shows two things", "by": "eve"}


@pytest.fixture
def reader(live_gallery: Gallery) -> GalleryReader:
    return GalleryReader(live_gallery)


def ids_of(reader: GalleryReader) -> list[str]:
    return sorted(item["id"] for _, item in reader.view().page(None, 1000))


def test_an_item_set_aside_is_found_by_nothing_and_comes_back_as_it_was(
    reader: GalleryReader, unit: Unit
) -> None:
    patch_items(reader, {"7": Patch("boot", {"color": "green"})})
    (before,) = reader.view().items(reader.view().positions(["7"]))
    assert listed_aside(reader) == []
    assert set_aside(reader, ["7"], **WHY).n_removed == 1
    assert "7" not in ids_of(reader)
    (one,) = listed_aside(reader)
    assert (one.id, one.label, one.reason, one.by) == ("7", "boot", WHY["reason"], "eve")
    assert one.metadata == before["metadata"]
    assert thumbnail_aside(reader, "7") == b"7"
    compact(reader)
    assert find_aside(reader, "7") == one
    assert bring_back(reader, "7").outcomes == ("added",)
    view = reader.view()
    assert view.items(view.positions(["7"])) == [before]
    assert view.vectors(view.positions(["7"])).tolist() == unit(40)[7:8].tolist()
    assert listed_aside(reader) == []
    with state_of(reader.gallery.path).reading() as rows:
        assert not rows.has(attachments)
        assert not rows.has(removals)


def items_of(reader: GalleryReader, *ids: str) -> list[dict[str, object]]:
    return reader.view().items(reader.view().positions(ids))


def test_what_stays_gets_what_it_lacks_and_gives_it_back(reader: GalleryReader) -> None:
    price: dict[str, object] = {"price": None}
    patch_items(
        reader,
        {
            "1": Patch(None, {"color": "green", "n": 3} | price),
            "2": Patch("boot", {"note": {"by": "eve"}, "n": 3}),
        },
    )
    before = items_of(reader, "1", "2", "3")
    change = set_aside(reader, ["2", "3"], **WHY, instead={"2": "1", "3": "1"})
    assert [one.split(" keeps its ")[1] for one in change.conflicts] == [
        "metadata.color, '2' has another",
        "label, '3' has another",
        "metadata.color, '3' has another",
        "metadata.price, '3' has another",
    ]
    assert (change.n_removed, change.n_carried) == (2, 3)
    (stays,) = items_of(reader, "1")
    assert (stays["label"], stays["metadata"]) == (
        "boot",
        {"color": "green", "price": 2, "note": {"by": "eve"}, "n": 3},
    )
    for one in ("3", "2"):
        bring_back(reader, one)
    assert items_of(reader, "1", "2", "3") == before


def test_where_no_item_could_stay_for_another_nothing_is_done(reader: GalleryReader) -> None:
    with pytest.raises(ItemNotFoundError, match="gone"):
        set_aside(reader, ["2"], **WHY, instead={"2": "gone"})
    with pytest.raises(ItemNotFoundError, match="gone"):
        set_aside(reader, ["gone"], **WHY, instead={"gone": "2"})
    assert len(ids_of(reader)) == 40
    set_aside(reader, ["2", "3"], **WHY, instead={"2": "3", "3": "4"})
    assert stand_ins(reader.gallery.path) == {"2": "4", "3": "4"}
    with state_of(reader.gallery.path).changing() as rows:
        rows.connection.execute(removals.update().where(removals.c.item == "3").values(why="none"))
    assert stand_ins(reader.gallery.path) == {"2": "3"}
    with pytest.raises(GalleryError, match=r"item='3'.*backup"):
        listed_aside(reader)
    with state_of(reader.gallery.path).changing() as rows:
        rows.remove(removals, removals.c.item == "3")
    set_aside(reader, ["4"], **WHY)
    bring_back(reader, "2")


def test_it_stays_aside_until_its_id_is_free_and_its_bundle_is_searched_with(
    reader: GalleryReader, rows: Rows, unit: Unit
) -> None:
    set_aside(reader, ["7"], **WHY)
    add_items(reader, rows(["7"], unit(1, seed=9)), bundle=BUNDLE)
    with pytest.raises(ItemExistsError, match="stays set aside"):
        bring_back(reader, "7")
    assert find_aside(reader, "7").label == "class 3"
    # Two pictures of one id are two items.
    set_aside(reader, ["7"], reason="neither", by="bob")
    assert [one.by for one in listed_aside(reader)] == ["eve", "bob"]
    assert bring_back(reader, "7").outcomes == ("added",)
    assert [one.by for one in listed_aside(reader)] == ["eve"]


@pytest.mark.parametrize("what", ["out", "back"])
@pytest.mark.parametrize("step", ["remembered", "forget", "noted"])
def test_a_death_leaves_the_item_in_one_place(
    reader: GalleryReader, monkeypatch: pytest.MonkeyPatch, step: str, what: str
) -> None:
    if what == "back":
        set_aside(reader, ["7"], **WHY)
    dies = step != ("forget" if what == "out" else "remembered")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if dies else nullcontext():
        if step == "noted":
            noted = active_pointer._add
            # After all that was to be noted, before any of it is in force.
            patch.setattr(active_pointer, "_add", lambda *given: (noted(*given), die()))
        else:
            patch.setattr(module, step, die)
        set_aside(reader, ["7"], **WHY) if what == "out" else bring_back(reader, "7")
    again = GalleryReader(Gallery(reader.gallery.path))
    assert ("7" in ids_of(again)) is not any(one.id == "7" for one in listed_aside(again))
    if "7" not in ids_of(again):
        bring_back(again, "7")
    assert ids_of(again).count("7") == 1
    set_aside(again, ["7"], **WHY)
    assert [one.id for one in listed_aside(again)] == ["7"]


def die(*_arguments: object, **_keywords: object) -> None:
    """Stands for the end of the process."""
    raise KeyboardInterrupt
