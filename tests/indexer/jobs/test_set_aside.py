"""Items set aside: found by nothing, whole on the disk, and back as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError, ItemExistsError, ItemNotFoundError, NotSetAsideError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.set_aside import bring_back, find_aside, listed_aside, set_aside, thumbnail_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.transfer.moving import copy_gallery

BUNDLE = "0123456789abcdef"
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]
WHY = {"reason": "it shows two things", "by": "eve"}

SET_ASIDE_UNTIL_KILLED = """
import os, signal, sys
from vicinal.indexer import Gallery
from vicinal.indexer.jobs import changes, set_aside as module
from vicinal.indexer.reader import GalleryReader
path, stage, what = sys.argv[1:]
def killed(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
places = {"row": (module, "write_sealed"), "note": (changes, "_commit"), "sealed": (module.Path, "unlink")}
setattr(*places[stage], killed)
reader = GalleryReader(Gallery(path))
if what == "out":
    module.set_aside(reader, ["7"], reason="it shows two things", by="eve")
else:
    module.bring_back(reader, "7")
"""


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
    assert not list((reader.gallery.path / "set-aside").iterdir())


def test_none_is_set_aside_where_one_is_not_there(reader: GalleryReader) -> None:
    with pytest.raises(ItemNotFoundError):
        set_aside(reader, ["7", "unknown"], **WHY)
    assert "7" in ids_of(reader)
    with pytest.raises(NotSetAsideError, match="no item '7' is set aside"):
        bring_back(reader, "7")


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


def test_a_damaged_row_is_told(reader: GalleryReader) -> None:
    set_aside(reader, ["7"], **WHY)
    (row,) = (reader.gallery.path / "set-aside").glob("*.arrow")
    row.write_bytes(row.read_bytes()[:-9])
    with pytest.raises(GalleryError, match="missing or damaged"):
        bring_back(reader, "7")


def test_a_copied_gallery_has_it_too(reader: GalleryReader) -> None:
    set_aside(reader, ["7"], **WHY)
    copied = GalleryReader(copy_gallery(reader.gallery, "other"))
    assert bring_back(copied, "7").outcomes == ("added",)
    assert [one.id for one in listed_aside(reader)] == ["7"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["out", "back"])
@pytest.mark.parametrize("stage", ["row", "note", "sealed"])
def test_a_killed_process_leaves_the_item_in_one_place(reader: GalleryReader, stage: str, what: str) -> None:
    gallery = reader.gallery
    if what == "back":
        set_aside(reader, ["7"], **WHY)
    command = [sys.executable, "-P", "-c", SET_ASIDE_UNTIL_KILLED, str(gallery.path), stage, what]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = subprocess.run(command, env=environment, check=False).returncode
    expects_kill = (stage in ("row", "note")) if what == "out" else (stage in ("note", "sealed"))
    assert (code == -signal.SIGKILL) is expects_kill
    again = GalleryReader(gallery)
    assert ("7" in ids_of(again)) is not any(one.id == "7" for one in listed_aside(again))
    if "7" not in ids_of(again):
        bring_back(again, "7")
    assert ids_of(again).count("7") == 1
    set_aside(again, ["7"], **WHY)
    assert [one.id for one in listed_aside(again)] == ["7"]
