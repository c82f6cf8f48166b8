"""Tables of galleries: each belongs to one gallery, and goes when nothing needs it any more."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from tests.indexer.engines.fakes import ExactEngine, engine_of
from tests.waiting import wait_until
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines import Engine
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery

N = 60
Unit = Callable[..., FloatArray]


@pytest.fixture
def engine() -> ExactEngine:
    return ExactEngine()


@pytest.fixture
def asked(engine: ExactEngine) -> Iterator[Engine]:
    with engine_of(engine, retry_seconds=0.0) as opened:
        yield opened


@pytest.fixture
def gallery(tmp_path: Path, asked: Engine, unit: Unit) -> Gallery:
    """Sixty items in three classes, whose candidates the engine finds."""
    made = Gallery(tmp_path / "galleries" / "shoes", engine=asked)
    publish(made, unit)
    return made


def publish(gallery: Gallery, unit: Unit) -> int:
    ids, labels = [str(i) for i in range(N)], [f"class {i % 3}" for i in range(N)]
    return publish_rows(gallery, make_rows(ids, unit(N), labels=labels), index="milvus")


def nearest(gallery: Gallery, unit: Unit) -> list[int]:
    return GalleryReader(gallery).view().nearest(unit(1, seed=9), 5)[0].tolist()


def test_a_version_is_searched_by_its_own_table_until_it_is_forgotten(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    expected = np.argsort(-(unit(N) @ unit(1, seed=9)[0]))[:5].tolist()
    assert nearest(gallery, unit) == expected
    (first,) = engine.tables
    assert first.startswith(f"{gallery.tables.prefix}1_initial_")
    reader = GalleryReader(gallery)
    remove_items(reader, [str(expected[0])])
    compacted = compact(reader)
    assert compacted is not None
    assert (compacted.version, compacted.index, len(engine.tables)) == (2, "milvus", 2)
    gallery.forget({1})
    (second,) = engine.tables
    assert second.startswith(f"{gallery.tables.prefix}2_initial_")
    assert len(engine.tables[second][0]) == N - 1


def test_a_gallery_that_is_deleted_takes_its_tables_with_it(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    publish(gallery, unit)
    engine.build("vicinal_another_1_initial_0_0", unit(3), engine_items(gallery), lambda *_: None)
    gallery.delete()
    assert list(engine.tables) == ["vicinal_another_1_initial_0_0"]


def engine_items(gallery: Gallery) -> object:
    return gallery.snapshot().item_table


def test_a_gallery_is_not_deleted_while_its_engine_does_not_answer(
    gallery: Gallery, engine: ExactEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_prefix: str) -> list[str]:
        raise EngineAwayError("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "names", away)
        with pytest.raises(EngineAwayError, match="it is away"):
            gallery.delete()
    assert len(GalleryReader(gallery).view()) == N
    gallery.delete()
    assert (engine.tables, gallery.path.exists()) == ({}, False)


def test_a_gallery_whose_engine_is_gone_for_good_can_be_deleted(
    gallery: Gallery, caplog: pytest.LogCaptureFixture
) -> None:
    Gallery(gallery.path).delete()
    assert not gallery.path.exists()
    assert "has no address" in caplog.text


def test_tables_that_killed_builds_have_left_go_with_the_next_build_once_they_are_old(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    old, prefix = int(time.time()) - 2 * 86_400, gallery.tables.prefix
    left = [f"{prefix}7_initial_{old:x}_aa", f"{prefix}7_initial_{int(time.time()):x}_bb"]
    others = f"vicinal_{'0' * 16}_7_initial_{old:x}_cc"
    for name in (*left, others):
        engine.tables[name] = (unit(1), gallery.snapshot().item_table)
    before = set(engine.tables)
    publish(gallery, unit)
    assert before - set(engine.tables) == {left[0]}


def test_a_table_goes_with_the_next_build_once_its_builder_is_dead(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    """A builder shows its life by a lock file, which ends with its process and stays on the disk."""
    with gallery.tables.naming(7, "initial") as name:
        engine.tables[name] = (unit(1), gallery.snapshot().item_table)
        publish(gallery, unit)
        assert name in engine.tables
    assert not [*gallery.path.glob("vicinal_*.lock")]
    (gallery.path / f"{name}.lock").touch()
    publish(gallery, unit)
    assert name not in engine.tables
    assert not [*gallery.path.glob("vicinal_*.lock")]
    assert nearest(gallery, unit)


def test_a_version_that_cannot_be_written_leaves_no_table(
    gallery: Gallery, engine: ExactEngine, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(engine.tables)

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("vicinal.indexer.views.snapshot.sync_path", fail)
    with pytest.raises(Exception, match="no room"):
        publish(gallery, unit)
    assert engine.tables == before


@pytest.mark.slow
def test_a_build_that_its_engine_broke_off_leaves_no_table_once_it_answers_again(
    gallery: Gallery, engine: ExactEngine, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, found = dict(engine.tables), nearest(gallery, unit)
    build = engine.build

    def break_off(*arguments: object) -> None:
        build(*arguments)  # type: ignore[arg-type]
        raise EngineAwayError("it is away")

    def away(_name: str) -> None:
        raise EngineAwayError("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "build", break_off)
        patch.setattr(engine, "drop", away)
        with pytest.raises(EngineAwayError):
            publish(gallery, unit)
        # It is searched again, and does not let it go yet.
        assert nearest(gallery, unit) == found
        assert len(engine.tables) == 2
    wait_until(lambda: engine.tables == before)


def test_what_is_added_waits_for_no_engine(gallery: Gallery, engine: ExactEngine, unit: Unit) -> None:
    reader, rows = GalleryReader(gallery), make_rows(["new"], unit(1, seed=9))
    engine.failures = [EngineAwayError("it is away")]
    add_items(reader, rows, bundle=BUNDLE)
    view = reader.view()
    assert N in nearest(gallery, unit)
    # Its own neighbors are those that the engine would have found.
    expected = np.argsort(-(unit(N) @ unit(1, seed=9)[0]))[:5].tolist()
    assert view.neighbor_positions(np.array([N]))[0, :5].tolist() == expected


def test_a_copy_has_tables_of_its_own_and_shares_and_removes_none(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    (own,) = engine.tables
    copied = copy_gallery(gallery, "copied")
    assert nearest(copied, unit) == nearest(gallery, unit)
    (copies,) = set(engine.tables) - {own}
    assert copies.startswith(copied.tables.prefix)
    assert copied.tables.prefix != gallery.tables.prefix
    copied.delete()
    assert list(engine.tables) == [own]
    again = copy_gallery(gallery, "again")
    gallery.delete()
    assert nearest(again, unit) == nearest(copy_gallery(again, "third"), unit)


def test_a_renamed_gallery_keeps_its_tables(gallery: Gallery, engine: ExactEngine, unit: Unit) -> None:
    before, found = list(engine.tables), nearest(gallery, unit)
    renamed = rename_gallery(gallery, "boots")
    assert (nearest(renamed, unit), list(engine.tables)) == (found, before)
    assert renamed.mend_tables() == 0


def test_an_archive_has_neither_the_address_nor_the_tables_of_its_gallery(
    gallery: Gallery, engine: ExactEngine, asked: Engine, unit: Unit, tmp_path: Path
) -> None:
    stream, before = io.BytesIO(), set(engine.tables)
    export_gallery(gallery, stream)
    assert b"secret" not in stream.getvalue()
    stream.seek(0)
    imported, _ = import_gallery(tmp_path / "elsewhere", stream, "imported", engine=asked)
    assert nearest(imported, unit) == nearest(gallery, unit)
    (made,) = set(engine.tables) - before
    assert made.startswith(imported.tables.prefix)
    imported.delete()
    assert set(engine.tables) == before


def test_an_archive_can_be_imported_where_the_engine_has_no_address(
    gallery: Gallery, engine: ExactEngine, asked: Engine, unit: Unit, tmp_path: Path
) -> None:
    """Searches say what is missing, and another index can be made."""
    stream, before = io.BytesIO(), set(engine.tables)
    export_gallery(gallery, stream)
    stream.seek(0)
    imported, _ = import_gallery(tmp_path / "elsewhere", stream)
    with pytest.raises(EngineTableError, match="was copied, and has no table of its own yet"):
        nearest(imported, unit)
    with pytest.raises(EngineError, match="set VICINAL_MILVUS_URL"):
        imported.mend_tables()
    publish_rows(imported, make_rows([str(i) for i in range(N)], unit(N)), index="Flat")
    assert nearest(imported, unit) == nearest(gallery, unit)
    assert set(engine.tables) == before


def test_a_table_that_its_engine_lost_or_cut_is_made_again(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    expected, reader = nearest(gallery, unit), GalleryReader(gallery)
    assert gallery.mend_tables() == 0
    (name,) = engine.tables
    engine.drop(name)
    with pytest.raises(EngineTableError, match="is gone: a server makes it again by itself"):
        reader.view().nearest(unit(1, seed=9), 5)
    snapshot = reader.view().snapshot
    assert snapshot.lacks_table
    assert (gallery.mend_tables(), snapshot.is_replaced) == (1, True)
    assert nearest(gallery, unit) == expected
    (name,) = engine.tables
    vectors, items = engine.tables[name]
    engine.tables[name] = (vectors[:5], items)
    assert gallery.mend_tables() == 1
    assert (nearest(gallery, unit), len(engine.tables)) == (expected, 1)
    GalleryReader(gallery).view().snapshot.check()


def test_damaged_files_are_made_again_with_a_table_of_their_own(
    gallery: Gallery, engine: ExactEngine, unit: Unit
) -> None:
    expected, (before,) = nearest(gallery, unit), engine.tables
    (gallery.snapshot_path(1) / "embeddings.npy").write_bytes(b"")
    gallery.reports.save(1, {"index": "milvus"})
    assert nearest(gallery, unit) == expected
    (after,) = engine.tables
    assert after != before


def test_patched_items_are_found_by_what_they_are_now(
    gallery: Gallery, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine knows them as they were built."""
    monkeypatch.setattr("vicinal.indexer.views.view._FEW_SELECTED", 0)
    reader, filter = GalleryReader(gallery), Filter.of("label = 'class 1'")
    near = nearest(gallery, unit)
    patch_items(reader, {str(near[0]): Patch(label="class 1"), str(near[1]): Patch(label="class 2")})
    remove_items(reader, [str(near[2])])
    view = reader.view()
    selection = view.select(gallery.table.matching(view.revision, filter), filter)
    found = view.nearest(unit(1, seed=9), N, selection)[0]
    assert sorted(found[found >= 0].tolist()) == selection.positions.tolist()
    assert near[0] in selection.positions


def test_selected_items_of_which_an_engine_gives_too_few_are_compared_one_by_one(
    gallery: Gallery, engine: ExactEngine, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Milvus does, which gives 16,384 at most."""
    monkeypatch.setattr("vicinal.indexer.views.view._FEW_SELECTED", 0)
    engine.sees = 0.1
    view, filter = GalleryReader(gallery).view(), Filter.of("label = 'class 1'")
    selection = view.select(gallery.table.matching(view.revision, filter), filter)
    order = np.argsort(-(unit(N) @ unit(1, seed=9)[0]))
    found = view.nearest(unit(1, seed=9), 8, selection)[0]
    assert sorted(found[found >= 0]) == sorted(order[order % 3 == 1][:8])
