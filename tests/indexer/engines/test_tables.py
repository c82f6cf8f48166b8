"""Tables of galleries: each belongs to one gallery, and goes when nothing needs it any more."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.conftest import make_rows, publish_rows
from tests.indexer.engines.fakes import ExactEngine, engine_of
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines import Engine
from vicinal.indexer.errors import EngineAwayError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import copy_gallery

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
