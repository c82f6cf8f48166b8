"""Mirrors with real galleries: what one replica changes the others search, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from tests.indexer.engines.fakes import ExactEngine
from tests.indexer.storage.home.conftest import Clock
from tests.indexer.storage.home.replicas import files_in
from tests.postgres_server import PostgresServer
from vicinal.indexer.disk import make_folder
from vicinal.indexer.engines import Engine
from vicinal.indexer.errors import GalleryBusyError, GalleryExistsError, HomeError, OvertakenError
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import DatabaseAwayError
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.home import uploads
from vicinal.indexer.storage.home.mirror import GRACE, Mirror
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


def two_alike(mirrors: Mirrors, unit: Unit, home: str | None = None) -> tuple[Mirror, Mirror]:
    a, b = mirrors("a", "b", home=home)
    index(a, unit)
    b.lay("shoes")
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
    """It is laid when it is first asked for."""
    a, b = mirrors("a", "b", home=home)
    index(a, unit)
    b.pull()
    assert not gallery_of(b).path.exists()
    view, same = (GalleryReader(Gallery.open(gallery_of(one).path)).view() for one in (a, b))
    queries = unit(3, 5)
    np.testing.assert_array_equal(view.nearest(queries, 5), same.nearest(queries, 5))
    require_alike(a, b)


def test_a_replica_leaves_vectors_to_the_engine_that_holds_them(mirrors: Mirrors, unit: Unit) -> None:
    a, b = mirrors("a", "b")
    engine = Engine("http://nowhere")
    engine._opened = ExactEngine()  # type: ignore[assignment]
    made = Gallery(gallery_of(a).path, engine=engine)
    with made.writing():
        publish_rows(made, make_rows([str(i) for i in range(N_ITEMS)], unit(N_ITEMS)), index="milvus")
    b.layer.leaves_vectors = True
    views = [GalleryReader(Gallery.open(gallery_of(one).path, engine=engine)).view() for one in (a, b)]
    assert not (gallery_of(b).snapshot_path(1) / "embeddings.npy").exists()
    np.testing.assert_array_equal(*(one.vectors(np.arange(N_ITEMS)) for one in views))
    np.testing.assert_array_equal(*(one.nearest(unit(3, 5), 5) for one in views))
    add(a, unit, "new")
    assert b.pull()
    assert (b.ledger.missing(), b.mend("galleries/shoes/versions/1")) == ([], False)
    assert "new" in ids_of(b)


def test_changes_go_through_any_replica(mirrors: Mirrors, home: str, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit, home)
    add(b, unit, "new")
    assert "new" in ids_of(b)
    assert a.pull()
    assert "new" in ids_of(a)
    remove_items(GalleryReader(gallery_of(a)), ["new", "3"])
    b.pull()
    assert not {"new", "3"} & set(ids_of(b))
    require_alike(a, b)
    assert not b.pull()


def test_a_change_is_one_transaction_with_what_is_remembered_of_it(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    before = files_in(a.data_dir)

    def fail() -> None:
        with gallery_of(a).writing(), a.publishing(gallery_of(a).path) as rows:
            rows.add(documents, {"kind": "note", "id": "lost", "at": 1.0, "content": "{}"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with gallery_of(a).writing():
        (gallery_of(a).path / "items.lance" / "data" / "more.lance").write_text("more")
        with a.publishing(gallery_of(a).path) as rows:
            rows.add(documents, {"kind": "note", "id": "kept", "at": 1.0, "content": "{}"})
    b.pull()
    with b.state("shoes").reading() as rows:
        assert rows.values(documents.c.id) == ["kept"]
    assert files_in(b.data_dir).keys() - before.keys() == {"galleries/shoes/items.lance/data/more.lance"}


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


def test_what_is_not_here_yet_is_waited_for(mirrors: Mirrors, unit: Unit) -> None:
    """The pointer may be known before its files lie here: what is open is searched on."""
    a, b = two_alike(mirrors, unit)
    reader = GalleryReader(gallery_of(b))
    before = reader.view()
    add(a, unit, "new")
    assert reader.view() is before
    b.pull()
    assert len(reader.view()) == N_ITEMS + 1


def test_one_replica_writes_at_a_time(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    with (
        gallery_of(a).writing(),
        pytest.raises(GalleryBusyError, match="is being written through another replica"),
    ):
        gallery_of(b).writing().__enter__()
    add(b, unit, "later")
    require_alike(a, b)


def test_a_writer_keeps_its_right_while_it_uses_it(mirrors: Mirrors, unit: Unit, clock: Clock) -> None:
    a, b = two_alike(mirrors, unit)
    with gallery_of(a).writing():
        hold = a._leases.hold_of("shoes")
        assert hold is not None
        for _ in range(5):
            clock.now += 9.0
            a._leases.renew(hold)
            with pytest.raises(GalleryBusyError):
                gallery_of(b).writing().__enter__()


def test_a_writer_that_was_overtaken_changes_nothing(
    mirrors: Mirrors, unit: Unit, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two_alike(mirrors, unit)
    change = ItemTable.change

    def slowly(table: ItemTable, *arguments: Any) -> int:
        revision = change(table, *arguments)
        if table.path.is_relative_to(a.data_dir):
            # It gave no sign of life for too long.
            clock.now += 11.0
            add(b, unit, "other")
        return revision

    monkeypatch.setattr(ItemTable, "change", slowly)
    with pytest.raises(OvertakenError, match="took over gallery 'shoes'"):
        add(a, unit, "lost", 3)
    monkeypatch.setattr(ItemTable, "change", change)
    assert {"other", "lost"} & set(ids_of(a)) == {"other"}
    require_alike(a, b)
    add(a, unit, "again", 9)
    require_alike(a, b)


@pytest.mark.slow
def test_without_the_database_nothing_changes_and_searches_go_on(
    mirrors: Mirrors, unit: Unit, postgres: PostgresServer
) -> None:
    a, b = two_alike(mirrors, unit)
    reader, before = GalleryReader(gallery_of(b)), files_in(b.data_dir)
    # As a thread of a server does.
    b.follow()
    b.shared.is_followed = True
    reader.view()
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(DatabaseAwayError, match="does not answer"):
                add(b, unit, "new")
            with pytest.raises(DatabaseAwayError):
                b.pull()
        assert len(reader.view()) == N_ITEMS
    finally:
        postgres.start()
    b.pull()
    assert files_in(b.data_dir) == before
    add(b, unit, "new")
    require_alike(a, b)


def test_a_commit_that_fails_is_put_back(
    mirrors: Mirrors, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two_alike(mirrors, unit)
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
        b.lay("shoes")
    assert not gallery_of(b).path.exists()


def test_galleries_are_renamed_copied_and_removed_for_all(mirrors: Mirrors, unit: Unit) -> None:
    a, b = two_alike(mirrors, unit)
    rename_gallery(gallery_of(a), "boots")
    copy_gallery(gallery_of(a, "boots"), "copied")
    b.pull()
    assert [one.name for one in list_galleries(b.data_dir / "galleries")] == ["boots", "copied"]
    assert sorted(ids_of(b, "copied")) == sorted(ids_of(a, "boots"))
    with pytest.raises(GalleryExistsError):
        a.put_folder(gallery_of(a, "boots").path, gallery_of(a, "copied").path)
    gallery_of(b, "boots").delete()
    require_alike(a, b)
    assert not gallery_of(a, "boots").path.exists()
    # Whoever still has the old name in hand makes nothing of that name.
    with pytest.raises(OvertakenError, match="is gone"):
        a.publish({gallery_of(a, "boots").path / "space" / "bundle.json": b"{}"})


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
    for name in ("shoes", "copied"):
        b.lay(name)
    queries = unit(2, 5)
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
    assert not b.pull()
    require_alike(a, b)


def test_what_nobody_names_for_a_day_is_removed(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    a, b = two_alike(mirrors, unit)
    objects = tmp_path / "home" / "objects"
    for name in ("old", "young"):
        (objects / f"{name}-000000").touch()
    kept = {path.name for path in objects.iterdir()} - {"old-000000"}
    for path in objects.iterdir():
        if path.name != "young-000000":
            os.utime(path, (path.stat().st_mtime - GRACE.total_seconds() - 9,) * 2)
    assert (a.tidy(), b.tidy()) == (1, 0)
    assert {path.name for path in objects.iterdir()} == kept


def test_what_is_copied_is_not_brought_again_unless_it_goes(
    mirrors: Mirrors, unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two_alike(mirrors, unit)
    gallery, objects = gallery_of(b), tmp_path / "home" / "objects"
    before = {path.name for path in objects.iterdir()}
    copy_gallery(gallery, "copied")
    assert {path.name for path in objects.iterdir()} == before
    bring = uploads.Upload.bring

    def late(upload: uploads.Upload) -> Any:
        # The gallery goes, and its files with it, between looking for them and naming them.
        monkeypatch.setattr(uploads.Upload, "bring", bring)
        for name in ("shoes", "copied"):
            gallery_of(a, name).delete()
        return bring(upload)

    monkeypatch.setattr(uploads.Upload, "bring", late)
    copy_gallery(gallery, "again")
    assert len({path.name for path in objects.iterdir()} - before) >= len(files_in(a.data_dir))
    a.lay("again")
    require_alike(a, b)


def test_what_killed_processes_left_half_written_is_tidied(mirrors: Mirrors, tmp_path: Path) -> None:
    """A day later, in the home too: what is younger somebody may be writing."""
    (a,) = mirrors("a")
    for folder in (a.folder / "objects", tmp_path / "home"):
        make_folder(folder)
        for name in ("old", "young"):
            (folder / f".{name}.partial").touch()
        os.utime(folder / ".old.partial", (0, 0))
    a.tidy()
    assert [path.name for path in tmp_path.rglob("*.partial")] == [".young.partial"] * 2
