"""Mirrors with real galleries: what one replica changes the others search, and nothing else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from tests.indexer.storage.home.replicas import files_in
from vicinal.indexer.errors import (
    GalleryBusyError,
    HomeError,
    OvertakenError,
)
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.disk import make_folder
from vicinal.indexer.storage.files import identity_of, remove_file, write_sealed
from vicinal.indexer.storage.home import leases, uploads
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.indexer.storage.item_table import ItemTable
from vicinal.indexer.transfer.moving import copy_gallery

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


def test_a_damaged_object_is_not_laid(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    a, b = mirrors("a", "b")
    index(a, unit)
    for path in (tmp_path / "home" / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(HomeError, match="is damaged: bring it back from a backup"):
        b.pull()
    assert list_galleries(b.data_dir / "galleries") == []


def test_two_who_change_one_file_do_not_lose_either(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    with a.noticing():
        gallery_of(b).pointer.activate(1)
        with pytest.raises(OvertakenError, match="another replica has changed"):
            a.publish({a.data_dir / "galleries" / "shoes" / "active.json": b"{}"})
    require_alike(a, b)


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


def test_changes_are_refused_while_a_look_at_the_log_has_no_answer(
    mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while a version is fetched, however long that takes, nor once the home has answered."""
    a, b = two_alike(mirrors, unit)
    add(a, unit, "new")
    refused: dict[str, list[bool]] = {}

    def is_refused(seconds: float) -> bool:
        later = time.monotonic() + seconds
        with monkeypatch.context() as patch, suppress(HomeError):
            patch.setattr(time, "monotonic", lambda: later)
            b.require_home()
            return False
        return True

    def noting(call: Callable[..., Any], name: str, *arguments: Path) -> Any:
        refused.setdefault(name.partition("/")[0], [is_refused(1.0), is_refused(5.0)])
        return call(name, *arguments)

    for name in ("get", "fetch"):
        monkeypatch.setattr(b.store, name, partial(noting, getattr(b.store, name)))
    b.pull()
    assert (refused, is_refused(60.0)) == ({"log": [False, True], "objects": [False, False]}, False)


def test_what_killed_processes_left_half_written_is_tidied(mirrors: Mirrors, tmp_path: Path) -> None:
    """A day later, in the home too: what is younger somebody may be writing."""
    (a,) = mirrors("a")
    for folder in (a.folder / "objects", tmp_path / "home", tmp_path / "home/log"):
        make_folder(folder)
        for name in ("old", "young"):
            (folder / f".{name}.partial").touch()
        os.utime(folder / ".old.partial", (0, 0))
    a.tidy()
    assert [path.name for path in tmp_path.rglob("*.partial")] == [".young.partial"] * 3
