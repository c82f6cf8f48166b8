"""Mirrors with real galleries: what one replica changes the others search, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from tests.indexer.storage.home.replicas import files_in
from vicinal.indexer.errors import (
    GalleryBusyError,
    GalleryExistsError,
    GalleryNotFoundError,
    HomeError,
    OvertakenError,
)
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import identity_of, remove_file, write_sealed
from vicinal.indexer.storage.gallery_names import aliases, remove_alias, set_alias
from vicinal.indexer.storage.home import laying, leases, uploads
from vicinal.indexer.storage.home.joining import join
from vicinal.indexer.storage.home.log import ENTRIES_BETWEEN_CHECKPOINTS
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.indexer.storage.item_table import ItemTable
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery

Mirrors = Callable[..., list[Mirror]]
Unit = Callable[..., Any]
DIM, N_ITEMS = 8, 40


def gallery_of(mirror: Mirror, name: str = "shoes") -> Gallery:
    return Gallery(mirror.data_dir / "galleries" / name)


def index(mirror: Mirror, unit: Unit, name: str = "shoes", seed: int = 0) -> Gallery:
    gallery = gallery_of(mirror, name)
    rows = make_rows([str(i) for i in range(N_ITEMS)], unit(N_ITEMS, seed))
    with gallery.writing():
        publish_rows(gallery, rows)
    return gallery


def two_alike(mirrors: Mirrors, unit: Unit) -> tuple[Mirror, Mirror]:
    a, b = mirrors("a", "b")
    index(a, unit)
    b.pull()
    return a, b


def ids_of(mirror: Mirror, name: str = "shoes") -> list[str]:
    gallery = gallery_of(mirror, name)
    view = GalleryReader(gallery).view()
    found: list[str] = gallery.table.columns(view.revision, ["id"])["id"].to_pylist()
    return found


def add(mirror: Mirror, unit: Unit, item_id: str, seed: int = 7, name: str = "shoes") -> None:
    add_items(GalleryReader(gallery_of(mirror, name)), make_rows([item_id], unit(1, seed)), bundle=BUNDLE)


def require_alike(*mirrors: Mirror) -> None:
    for one in mirrors:
        one.pull()
    first = files_in(mirrors[0].data_dir)
    assert all(files_in(one.data_dir) == first for one in mirrors)
    assert first


def test_what_one_replica_indexes_another_searches(mirrors: Mirrors, home: str, unit: Unit) -> None:
    a, b = mirrors("a", "b", home=home)
    index(a, unit)
    b.pull()
    view, same = (GalleryReader(gallery_of(one)).view() for one in (a, b))
    queries = unit(3, 5)
    np.testing.assert_array_equal(view.nearest(queries, 5), same.nearest(queries, 5))
    require_alike(a, b)


def test_changes_go_through_any_replica(mirrors: Mirrors, home: str, unit: Unit) -> None:
    a, b = mirrors("a", "b", home=home)
    index(a, unit)
    add(b, unit, "new")
    assert "new" in ids_of(b)
    a.pull()
    assert "new" in ids_of(a)
    remove_items(GalleryReader(gallery_of(a)), ["new", "3"])
    b.pull()
    assert not {"new", "3"} & set(ids_of(b))
    require_alike(a, b)


@pytest.mark.slow
def test_a_search_that_runs_keeps_its_version(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    reader = GalleryReader(gallery_of(b))
    before = reader.view()
    expected = before.nearest(unit(2, 5), 5)
    add(a, unit, "new")
    compact(GalleryReader(gallery_of(a)))
    prune(gallery_of(a), RetentionPolicy(versions=1, days=0.0))
    b.pull()
    np.testing.assert_array_equal(before.nearest(unit(2, 5), 5), expected)
    assert reader.view().snapshot.manifest.version == 2
    assert not gallery_of(b).snapshot_path(1).exists()
    require_alike(a, b)


@pytest.mark.slow
def test_galleries_are_renamed_copied_and_deleted_everywhere(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    gallery = index(a, unit)
    set_alias(gallery.path.parent, "best", "shoes")
    b.pull()
    (gallery_of(b).path / "searches").mkdir()
    (gallery_of(b).path / "searches" / "searches.sqlite").write_bytes(b"own")
    moved = rename_gallery(gallery, "boots")
    copy_gallery(moved, "second")
    b.pull()
    root = b.data_dir / "galleries"
    assert [one.name for one in list_galleries(root)] == ["boots", "second"]
    assert aliases(root) == {"best": "boots"}
    assert ids_of(b, "second") == ids_of(a, "boots")
    # What no home keeps goes with its gallery.
    assert (root / "boots" / "searches" / "searches.sqlite").read_bytes() == b"own"
    table = [root / name / "items.lance" / "data" for name in ("boots", "second")]
    one, other = (next(folder.iterdir()) for folder in table)
    assert one.samefile(other)
    remove_alias(root, "best")
    gallery_of(b, "boots").delete()
    a.pull()
    assert [one.name for one in list_galleries(a.data_dir / "galleries")] == ["second"]
    require_alike(a, b)


def test_records_are_there_before_they_are_acknowledged(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    gallery = index(a, unit)
    path = gallery.path / "comparisons" / "one.json"
    path.parent.mkdir()
    write_sealed(path, "{}")
    assert identity_of(gallery.path)
    b.pull()
    same = gallery_of(b).path / "comparisons" / "one.json"
    assert same.read_bytes() == path.read_bytes()
    assert identity_of(gallery_of(b).path) == identity_of(gallery.path)
    remove_file(same)
    a.pull()
    assert not path.exists()


def test_counts_of_a_replica_are_brought_up_from_time_to_time(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    path = index(a, unit).path / "calibrations" / "drift" / f"c.{a.replica}-0.json"
    path.parent.mkdir(parents=True)
    a.pull()
    write_sealed(path, '{"n": 1}')
    before = a.pull()
    a._brought = -np.inf
    assert a.pull() == before + 1
    b.pull()
    assert (b.data_dir / path.relative_to(a.data_dir)).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_one_replica_writes_at_a_time(mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    # However late the sign of life comes that shows that the other one writes.
    monkeypatch.setattr(leases, "LEASE_SECONDS", 600.0)
    a, b = mirrors("a", "b")
    gallery = index(a, unit)
    with gallery.writing():
        began = threading.Event()

        def wait() -> None:
            began.set()
            add(b, unit, "later")

        with pytest.raises(GalleryBusyError, match="is being written through another replica"):
            gallery_of(b).writing().__enter__()
        other = threading.Thread(target=wait)
        other.start()
        began.wait()
    other.join()
    a.pull()
    assert "later" in ids_of(a)


@pytest.mark.slow
def test_a_writer_that_was_overtaken_changes_nothing(
    mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = mirrors("a", "b")
    index(a, unit)
    # It shows no life.
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(leases.Leases, "_show_life", lambda *_: None)
    change = ItemTable.change

    def slowly(table: ItemTable, *arguments: Any) -> int:
        revision = change(table, *arguments)
        if table.path.is_relative_to(a.data_dir):
            add(b, unit, "other")
        return revision

    monkeypatch.setattr(ItemTable, "change", slowly)
    with pytest.raises(OvertakenError, match="took over gallery 'shoes'"):
        add(a, unit, "lost", 3)
    monkeypatch.setattr(ItemTable, "change", change)
    assert sorted(ids_of(a)) == sorted(ids_of(b))
    assert {"other", "lost"} & set(ids_of(a)) == {"other"}
    require_alike(a, b)
    add(a, unit, "again", 9)
    require_alike(a, b)


@pytest.mark.slow
def test_without_the_home_nothing_changes_and_searches_go_on(
    mirrors: Mirrors, unit: Unit, tmp_path: Path
) -> None:
    a, b = two_alike(mirrors, unit)
    (tmp_path / "home").rename(tmp_path / "away")
    before = files_in(b.data_dir)
    with pytest.raises(HomeError, match="does not answer"):
        add(b, unit, "new")
    with pytest.raises(HomeError):
        b.pull()
    assert files_in(b.data_dir) == before
    assert len(ids_of(b)) == N_ITEMS
    (tmp_path / "away").rename(tmp_path / "home")
    b.pull()
    add(b, unit, "new")
    require_alike(a, b)


def test_a_commit_that_fails_is_put_back(
    mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = mirrors("a", "b")
    index(a, unit)
    before = files_in(a.data_dir)

    def refuse(*_: object) -> None:
        raise HomeError("home 'x' does not answer: it is a test")

    with monkeypatch.context() as patch:
        patch.setattr(uploads.Upload, "_bring", refuse)
        with pytest.raises(HomeError):
            add(a, unit, "new")
    assert files_in(a.data_dir) == before
    add(a, unit, "new")
    require_alike(a, b)


@pytest.mark.slow
def test_a_new_replica_begins_at_a_checkpoint(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    (a,) = mirrors("a")
    gallery = index(a, unit)
    (gallery.path / "comparisons").mkdir()
    while a.pull() < ENTRIES_BETWEEN_CHECKPOINTS + 10:
        write_sealed(gallery.path / "comparisons" / "one.json", json.dumps({"n": a.pull()}))
    late = join(tmp_path / "late", str(tmp_path / "home"))
    for number in range(1, ENTRIES_BETWEEN_CHECKPOINTS):
        (tmp_path / "home" / "log" / f"{number:012d}.json").unlink()
    (b,) = mirrors("b")
    require_alike(a, b, late)
    add(b, unit, "new")
    require_alike(a, b, late)


def test_who_is_behind_does_not_look_for_what_was_erased(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    gallery = index(a, unit)
    b.pull()
    (gallery.path / "comparisons").mkdir()
    write_sealed(gallery.path / "comparisons" / "one.json", "{}")
    # A step of its own, before which the file is still there.
    moved = rename_gallery(gallery, "boots")
    a.erase([moved.path / "comparisons" / "one.json"])
    require_alike(a, b)
    assert ids_of(b, "boots") == ids_of(a, "boots")


def test_a_folder_with_galleries_brings_them_along(tmp_path: Path, unit: Unit) -> None:
    gallery = Gallery(tmp_path / "a" / "galleries" / "shoes")
    publish_rows(gallery, make_rows(["x", "y"], unit(2)))
    set_alias(gallery.path.parent, "best", "shoes")
    a = join(tmp_path / "a", str(tmp_path / "home"))
    b = join(tmp_path / "b", str(tmp_path / "home"))
    assert ids_of(b) == ["x", "y"]
    assert aliases(b.data_dir / "galleries") == {"best": "shoes"}
    require_alike(a, b)


def test_two_galleries_of_one_name_are_not_mixed(tmp_path: Path, unit: Unit) -> None:
    for name in ("a", "b"):
        publish_rows(Gallery(tmp_path / name / "galleries" / "shoes"), make_rows([name], unit(1)))
    join(tmp_path / "a", str(tmp_path / "home"))
    with pytest.raises(GalleryExistsError):
        join(tmp_path / "b", str(tmp_path / "home"))
    assert Mirror.of(tmp_path / "b") is None
    assert Gallery(tmp_path / "b" / "galleries" / "shoes").active_version == 1


def test_a_mirror_stays_with_its_home(mirrors: Mirrors, tmp_path: Path) -> None:
    mirrors("a")
    with pytest.raises(HomeError, match="is a mirror of home"):
        join(tmp_path / "a", str(tmp_path / "another"))


def test_a_damaged_object_is_not_laid(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    a, b = mirrors("a", "b")
    index(a, unit)
    for path in (tmp_path / "home" / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(HomeError, match="is damaged: bring it back from a backup"):
        b.pull()
    assert list_galleries(b.data_dir / "galleries") == []


def test_a_lost_ledger_is_made_again_without_fetching(
    mirrors: Mirrors, unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = mirrors("a")
    index(a, unit)
    for path in a.data_dir.glob("mirror/ledger.sqlite*"):
        path.unlink()
    monkeypatch.setattr(laying.Layer, "_fetch", lambda *_: pytest.fail("it is here"))
    before = files_in(a.data_dir)
    again = join(a.data_dir, str(tmp_path / "home"))
    assert files_in(again.data_dir) == before
    assert again.replica == a.replica


def test_a_file_that_went_missing_is_fetched_again(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    (a,) = mirrors("a")
    gallery = index(a, unit)
    before = files_in(a.data_dir)
    shutil.rmtree(gallery.path / "versions")
    next((gallery.path / "items.lance" / "data").iterdir()).unlink()
    assert files_in(join(a.data_dir, str(tmp_path / "home")).data_dir) == before


def test_two_who_change_one_file_do_not_lose_either(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    with a.noticing():
        gallery_of(b).pointer.activate(1)
        with pytest.raises(OvertakenError, match="another replica has changed"):
            a.publish({a.data_dir / "galleries" / "shoes" / "active.json": b"{}"})
    require_alike(a, b)


def test_nothing_is_written_to_a_gallery_that_is_gone(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    gallery = index(a, unit)
    b.pull()
    gallery_of(b).delete()
    with pytest.raises(OvertakenError, match="has another name by now, or is gone"):
        write_sealed(gallery.path / "identity.json", "{}")
    with pytest.raises(GalleryNotFoundError):
        Gallery.open(gallery.path)


def flip(path: Path) -> None:
    """Change one byte in the middle, and nothing that tells of it."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "damage"),
    [
        ("versions/1/initial.index", flip),
        ("items.lance/data/*", flip),
        ("items.lance/_versions/*", flip),
        ("items.lance/data/*", Path.unlink),
    ],
)
def test_a_damaged_file_is_fetched_again(
    mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch, place: str, damage: Callable[[Path], None]
) -> None:
    a, b = mirrors("a", "b")
    copy_gallery(index(a, unit), "copied")
    number, queries = b.pull(), unit(2, 5)
    before = GalleryReader(gallery_of(b)).view().nearest(queries, 5)
    # Of the newest revision.
    path = min(gallery_of(b).path.glob(place))
    was = path.read_bytes()
    damage(path)
    monkeypatch.setattr(Gallery, "_derive", lambda *_, **__: pytest.fail("its home has it"))
    same = GalleryReader(gallery_of(b)).view()
    gallery_of(b).table.check(same.revision)
    np.testing.assert_array_equal(same.nearest(queries, 5), before)
    assert path.read_bytes() == was
    # So is what was linked to it, and nothing was changed in the home.
    assert b.pull() == number
    require_alike(a, b)


@pytest.mark.slow
def test_a_file_that_the_home_has_damaged_too_is_made_again(
    mirrors: Mirrors, unit: Unit, tmp_path: Path
) -> None:
    a, b = two_alike(mirrors, unit)
    path = gallery_of(b).snapshot_path(1) / "initial.index"
    for one in (tmp_path / "home" / "objects").glob(f"{hashlib.sha256(path.read_bytes()).hexdigest()}*"):
        one.write_bytes(b"damaged")
    path.unlink()
    assert len(GalleryReader(gallery_of(b)).view()) == N_ITEMS
    gallery_of(b).snapshot().check()
    require_alike(a, b)
