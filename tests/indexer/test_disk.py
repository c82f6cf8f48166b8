"""Disks that are full, read-only or damaged: an error of one line or a rebuild, never a wrong answer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.disks import blank, cut, flip, full, mounted, short_files
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError, StorageError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs import compaction
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader

BUNDLE = "0123456789abcdef"
N_NEW = 60
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]
Write = Callable[[Gallery], object]
Contents = tuple[list[Any], list[list[int]]]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "16m") as folder:
        yield folder


@pytest.fixture
def live_on_disk(disk: Path, live_gallery: Gallery) -> Gallery:
    """A gallery with live changes on a small disk."""
    remove_items(GalleryReader(live_gallery), ["1", "2"])
    shutil.copytree(live_gallery.path, disk / "shoes")
    return Gallery(disk / "shoes")


@pytest.fixture
def writes(rows: Rows, unit: Unit) -> dict[str, Write]:
    """All that writes to a gallery, large enough not to fit into what little is left."""
    new = rows([f"new {i}" for i in range(N_NEW)], unit(N_NEW, seed=5))

    def index(gallery: Gallery) -> None:
        with gallery.writing():
            gallery.start(new, bundle=BUNDLE, bundle_name="tiny")
            gallery.publish(build_neighbor_graph(gallery.pending_embeddings()))

    return {
        "add": lambda gallery: add_items(GalleryReader(gallery), new, bundle=BUNDLE),
        "patch": lambda gallery: patch_items(GalleryReader(gallery), {"3": Patch(label="boots")}),
        "remove": lambda gallery: remove_items(GalleryReader(gallery), ["4"]),
        "compact": lambda gallery: compact(GalleryReader(gallery)),
        "activate": lambda gallery: gallery.pointer.activate(gallery.versions()[0], as_built=True),
        "index": index,
        "prune": lambda gallery: prune(gallery, RetentionPolicy(versions=1, days=0.0)),
    }


WRITES = ["add", "patch", "remove", "compact", "activate", "index", "prune"]


def contents(gallery: Gallery) -> Contents:
    """All items, and what some queries find."""
    view = GalleryReader(gallery).view()
    queries = np.eye(view.snapshot.manifest.dim, dtype=np.float32)
    return [item for _, item in view.page(None, 1000)], np.sort(view.nearest(queries, 10)).tolist()


def check_whole(gallery: Gallery) -> None:
    for version in gallery.versions():
        gallery.table.check(version)
        gallery.snapshot(version).check()


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 4096, 16_384, 40_960])
@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_is_an_error_and_nothing_is_half_done(
    live_on_disk: Gallery, disk: Path, writes: dict[str, Write], write: str, left: int
) -> None:
    before, error = contents(live_on_disk), None
    with full(disk, left):
        try:
            writes[write](live_on_disk)
        except StorageError as refusal:
            error = refusal
        assert error is None or contents(live_on_disk) == before
    if error is not None:
        assert "\n" not in str(error)
        assert contents(Gallery(live_on_disk.path)) == before
        writes[write](live_on_disk)
    check_whole(live_on_disk)


@pytest.mark.slow
def test_a_compaction_without_room_ends_with_an_error_and_not_with_the_process(
    live_on_disk: Gallery, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write through a memory map has no way to fail but a signal."""
    gathered = compaction._gathered

    def without_room(*arguments: Any) -> FloatArray:
        with full(disk, 0):
            return gathered(*arguments)

    monkeypatch.setattr(compaction, "_gathered", without_room)
    with pytest.raises(StorageError, match="No space left"):
        compact(GalleryReader(live_on_disk))


@pytest.mark.parametrize("longest", [256, 1024, 3000])
@pytest.mark.parametrize("write", ["add", "compact", "index"])
def test_files_that_cannot_grow_are_an_error_and_nothing_is_half_done(
    live_gallery: Gallery, writes: dict[str, Write], write: str, longest: int
) -> None:
    """The same without a mount."""
    remove_items(GalleryReader(live_gallery), ["1"])
    before = contents(live_gallery)
    with short_files(longest), pytest.raises(StorageError):
        writes[write](live_gallery)
    assert contents(live_gallery) == before
    check_whole(live_gallery)


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_disk_is_searched_and_refuses_every_change(
    live_on_disk: Gallery, disk: Path, writes: dict[str, Write], write: str
) -> None:
    before = contents(live_on_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StorageError, match="Read-only"):
        writes[write](live_on_disk)
    assert contents(Gallery(live_on_disk.path)) == before


@pytest.mark.slow
def test_damage_on_a_read_only_disk_is_named(live_on_disk: Gallery, disk: Path) -> None:
    flip(live_on_disk.snapshot_path(live_on_disk.versions()[0]) / "embeddings.npy", 0.5)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StorageError, match=r"embeddings\.npy' is missing or damaged, and .* Read-only"):
        live_on_disk.snapshot()


@pytest.mark.parametrize("damage", [flip, cut, blank])
@pytest.mark.parametrize("place", [0.02, 0.4, 0.98])
def test_a_damaged_file_of_a_live_change_is_an_error(
    live_gallery: Gallery, rows: Rows, unit: Unit, damage: Callable[[Path, float], None], place: float
) -> None:
    files = set((live_gallery.path / "items.lance" / "data").iterdir())
    add_items(GalleryReader(live_gallery), rows(["new"], unit(1, seed=5)), bundle=BUNDLE)
    (path,) = set((live_gallery.path / "items.lance" / "data").iterdir()) - files
    damage(path, place)
    with pytest.raises(GalleryError, match="is missing or damaged: bring it back"):
        GalleryReader(live_gallery).view()


def test_a_clock_that_goes_back_changes_no_order(
    tmp_path: Path, rows: Rows, unit: Unit, publish: Callable[..., int]
) -> None:
    """Order and identity are the table's own numbers; the times are for people."""

    def at(name: str, year: int) -> pa.Table:
        moment = pa.array([datetime(year, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
        return rows([name], unit(1, seed=year)).append_column("added_at", moment)

    gallery = Gallery(tmp_path / "galleries" / "clock")
    publish(gallery, at("first", 2040))
    reader = GalleryReader(gallery)
    add_items(reader, at("second", 1980), bundle=BUNDLE)
    add_items(reader, at("first", 1970), bundle=BUNDLE, conflict="replace")
    assert [item["id"] for _, item in reader.view().page(None, 100)] == ["second", "first"]
    compact(reader)
    assert [item["id"] for _, item in reader.view().page(None, 100)] == ["second", "first"]
    assert prune(gallery, RetentionPolicy(versions=1, days=0.0)).versions == [1]
