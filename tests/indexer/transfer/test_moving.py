"""Galleries under another name and as copies: nothing of them is lost, and nothing in their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery
from vicinal.indexer.errors import GalleryBusyError, GalleryExistsError, GalleryNameError
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import identity_of, making_in, scratch
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.indexer.transfer import moving
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery

BUNDLE = "0123456789abcdef"
MakeRows = Callable[..., pa.Table]
Draw = Callable[..., FloatArray]


@pytest.fixture
def changed(live_gallery: Gallery, rows: MakeRows, unit: Draw) -> Gallery:
    """A gallery of two versions with live changes."""
    compact(GalleryReader(live_gallery))
    reader = GalleryReader(live_gallery)
    add_items(reader, rows(["new"], unit(1, 5)), bundle=BUNDLE)
    patch_items(reader, {"3": Patch(label="boots")})
    remove_items(reader, ["4"])
    compact(reader)
    remove_items(reader, ["5"])
    return live_gallery


def contents(gallery: Gallery) -> Any:
    """All items, what some queries find, and the versions."""
    view = GalleryReader(gallery).view()
    queries = np.eye(view.snapshot.manifest.dim, dtype=np.float32)
    items = [item for _, item in view.page(None, 1000)]
    return items, np.sort(view.nearest(queries, 10)).tolist(), gallery.versions(), gallery.activation


def left_over(gallery: Gallery) -> list[str]:
    """Hidden files but the room that removals take."""
    return [path.name for path in gallery.path.parent.glob(".*") if path.name != ".reserve"]


def test_a_renamed_gallery_holds_what_it_held(changed: Gallery) -> None:
    before, identity = contents(changed), identity_of(changed.path)
    renamed = rename_gallery(changed, "boots")
    assert (renamed.name, contents(renamed), identity_of(renamed.path)) == ("boots", before, identity)
    assert not changed.path.exists()
    renamed.pointer.activate(renamed.versions()[0], as_built=True)
    assert len(GalleryReader(renamed).view()) == 40


def test_a_copy_holds_the_same_and_changes_apart(changed: Gallery, rows: MakeRows, unit: Draw) -> None:
    before = contents(changed)
    copy = copy_gallery(changed, "boots")
    assert contents(copy) == contents(changed) == before
    remove_items(GalleryReader(copy), ["7"])
    add_items(GalleryReader(copy), rows(["newer"], unit(1, 6)), bundle=BUNDLE)
    compact(GalleryReader(copy))
    assert contents(changed) == before
    changed.delete()
    assert {"new", "newer"} <= {item["id"] for item in contents(copy)[0]}
    assert left_over(copy) == []


@pytest.mark.parametrize("move", [copy_gallery, rename_gallery])
@pytest.mark.parametrize("taken", ["gallery", "alias", "own name", "leftover"])
def test_a_name_that_is_taken_is_refused(
    live_gallery: Gallery, move: Callable[[Gallery, str], Gallery], taken: str
) -> None:
    root = live_gallery.path.parent
    if taken == "gallery":
        copy_gallery(live_gallery, "boots")
    elif taken == "alias":
        set_alias(root, "boots", "shoes")
    elif taken == "leftover":
        (root / "boots" / "staging").mkdir(parents=True)
    before = contents(live_gallery)
    with pytest.raises(GalleryExistsError, match="choose another name"):
        move(live_gallery, "shoes" if taken == "own name" else "boots")
    with pytest.raises(GalleryNameError):
        move(live_gallery, "../boots")
    assert contents(live_gallery) == before
    assert left_over(live_gallery) == []


@pytest.mark.parametrize("move", [copy_gallery, rename_gallery])
@pytest.mark.parametrize("lock", ["writing", "compacting"])
def test_a_gallery_that_is_being_written_is_left_alone(
    live_gallery: Gallery,
    move: Callable[[Gallery, str], Gallery],
    lock: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "_PATIENCE", 0.05)
    with getattr(live_gallery, lock)(), pytest.raises(GalleryBusyError):
        move(live_gallery, "boots")
    assert not (live_gallery.path.parent / "boots").exists()


def test_what_a_death_left_is_removed_when_nobody_is_at_it(tmp_path: Path) -> None:
    left, deleted = tmp_path / ".a.partial", tmp_path / ".shoes.1.deleted"
    for folder in (left, deleted):
        (folder / "shoes").mkdir(parents=True)
    with making_in(tmp_path), scratch(tmp_path) as folder:
        assert sorted(tmp_path.iterdir()) == sorted([left, deleted, folder])
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []
