"""Live changes: whole, durable, seen at once, and the same one by one as together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.waiting import wait_until
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import (
    BundleMismatchError,
    GalleryBusyError,
)
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import changes
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.view import GalleryView

BUNDLE = "0123456789abcdef"
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]


@pytest.fixture
def reader(live_gallery: Gallery) -> GalleryReader:
    return GalleryReader(live_gallery)


def ids_of(view: GalleryView) -> list[str]:
    return [item["id"] for _, item in view.page(None, 1000)]


def test_a_view_that_is_held_keeps_its_state(reader: GalleryReader, rows: Rows, unit: Unit) -> None:
    add_items(reader, rows(["first"], unit(1, seed=8)), bundle=BUNDLE)
    held = reader.view()
    before = (ids_of(held), held.vectors(np.arange(held.n_positions)).tobytes())
    add_items(reader, rows(["second", "0"], unit(2, seed=9)), bundle=BUNDLE, conflict="replace")
    remove_items(reader, ["first", "7"])
    assert (ids_of(held), held.vectors(np.arange(held.n_positions)).tobytes()) == before


def test_a_patch_replaces_the_label_and_merges_the_metadata(reader: GalleryReader) -> None:
    patch = Patch(label="boots", metadata={"price": 9.5, "color": None, "size": {"eu": 42}})
    assert patch_items(reader, {"7": patch}).n_patched == 1
    item = reader.view().items([reader.view().position("7")])[0]
    assert (item["label"], item["metadata"]) == ("boots", {"price": 9.5, "size": {"eu": 42}})


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.sampled_from("abc012"), min_size=1, max_size=8, unique=True), seed=st.integers(0, 99))
def test_items_added_one_by_one_or_together_give_the_same_gallery(
    tmp_path_factory: pytest.TempPathFactory,
    publish: Callable[..., int],
    rows: Rows,
    unit: Unit,
    ids: list[str],
    seed: int,
) -> None:
    root, new = tmp_path_factory.mktemp("pair"), unit(8, seed=100 + seed)[: len(ids)]
    states = []
    for name, steps in (("single", [[i] for i in range(len(ids))]), ("batch", [list(range(len(ids)))])):
        gallery = Gallery(root / name)
        publish(gallery, rows([str(i) for i in range(5)], unit(5)))
        reader = GalleryReader(gallery)
        for step in steps:
            add_items(reader, rows([ids[i] for i in step], new[step]), bundle=BUNDLE, conflict="replace")
        states.append(_state(GalleryReader(gallery).view()))
    assert states[0] == states[1]


def _state(view: GalleryView) -> list[object]:
    """Everything that a search sees."""
    positions = view.positions(ids_of(view))
    lists = view.neighbor_positions(positions)
    names = np.array([*view.sequences(np.arange(view.n_positions)), -1])[lists]
    return [
        ids_of(view),
        view.vectors(positions).tolist(),
        names.tolist(),
        view.neighbor_similarities(positions).tolist(),
        view.graph_staleness,
    ]


def test_staleness_is_the_share_of_changed_items(reader: GalleryReader, rows: Rows, unit: Unit) -> None:
    add_items(reader, rows(["new", "3"], unit(2, seed=9)), bundle=BUNDLE, conflict="replace")
    remove_items(reader, ["4", "5"])
    # 37 of 40 items are the same, in a gallery of 39.
    assert reader.view().graph_staleness == pytest.approx(1 - 37 / 40)


def test_items_of_another_bundle_are_refused(reader: GalleryReader, rows: Rows, unit: Unit) -> None:
    with pytest.raises(BundleMismatchError, match="fedcba9876543210"):
        add_items(reader, rows(["new"], unit(1)), bundle="fedcba9876543210")


def test_a_change_waits_for_the_writer_before_it_and_gives_up_in_the_end(
    reader: GalleryReader, rows: Rows, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_PATIENCE", 0.05)
    with Gallery(reader.gallery.path).writing(), pytest.raises(GalleryBusyError, match="another job"):
        add_items(reader, rows(["new"], unit(1)), bundle=BUNDLE)
    assert add_items(reader, rows(["new"], unit(1)), bundle=BUNDLE).outcomes == ("added",)


def test_a_change_on_a_version_that_was_left_meanwhile_is_refused_and_leaves_nothing(
    reader: GalleryReader,
    publish: Callable[..., int],
    rows: Rows,
    unit: Unit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gallery, first = reader.gallery, reader.gallery.active_version
    commit = gallery.table.__class__.change

    def roll_back_in_between(*arguments: object) -> int:
        revision = commit(*arguments)
        gallery.pointer.activate(first)
        return revision

    monkeypatch.setattr(gallery.table.__class__, "change", roll_back_in_between)
    with pytest.raises(GalleryBusyError, match="send the change again"):
        remove_items(reader, ["7"])
    assert len(reader.view()) == 40


@pytest.mark.slow
def test_no_reader_ever_sees_half_of_a_change(reader: GalleryReader, rows: Rows, unit: Unit) -> None:
    """Each change replaces a pair; every view holds a pair of one turn."""
    add_items(reader, rows(["a", "b"], unit(2), labels=["0", "0"]), bundle=BUNDLE)
    seen: list[tuple[str | None, ...]] = []
    done = threading.Event()

    def read() -> None:
        other = GalleryReader(Gallery(reader.gallery.path))
        while not done.is_set():
            view = other.view()
            seen.append(tuple(item["label"] for item in view.items(view.positions(["a", "b"]))))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        wait_until(lambda: seen or reading.done())
        for turn in range(1, 15):
            new = rows(["a", "b"], unit(2, seed=turn), labels=[str(turn)] * 2)
            add_items(reader, new, bundle=BUNDLE, conflict="replace")
        wait_until(lambda: len(set(seen)) > 1 or reading.done())
        done.set()
        reading.result()
    assert {len(set(pair)) for pair in seen} == {1}
    assert len(set(seen)) > 1
