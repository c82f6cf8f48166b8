"""View: finds what a slow loop over the live items finds, whatever was added, removed and selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views import view as view_module
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize

BUNDLE = "0123456789abcdef"
N, N_ADDED, DIM = 600, 60, 8
INDEXES = ["Flat", "IVF4,Flat", "SQ8", "Flat on a GPU", "IVF4,Flat on a GPU"]
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]


@pytest.fixture(scope="module", params=INDEXES)
def changed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    publish: Callable[..., int],
    rows: Rows,
    unit: Unit,
) -> Iterator[GalleryView]:
    """600 built and 60 added items; every fifth of both is removed, and the nearest to any query too."""
    gallery = Gallery(tmp_path_factory.mktemp("galleries") / "shoes")
    spec, _, gpu = request.param.partition(" on ")
    publish(gallery, rows([str(i) for i in range(N)], unit(N)), index=spec)
    reader = GalleryReader(gallery)
    add_items(reader, rows([f"new {i}" for i in range(N_ADDED)], unit(N_ADDED, seed=1)), bundle=BUNDLE)
    built, added = range(0, N, 5), range(0, N_ADDED, 5)
    remove_items(reader, [*(str(i) for i in built), *(f"new {i}" for i in added)])
    with stand_in_gpus([2**30]) as gpus:
        view = GalleryReader(Gallery(gallery.path), IndexDevices("cuda" if gpu else "cpu")).view()
        view.nearest(unit(1), 1)
        assert bool(gpus.batches) == bool(gpu)
        yield view


def live_positions(view: GalleryView) -> npt.NDArray[np.int64]:
    positions = np.arange(view.n_positions)
    return positions[~view.is_dead(positions)]


def nearest_by_loop(view: GalleryView, query: FloatArray, n: int, among: npt.NDArray[np.int64]) -> set[int]:
    similarities = view.vectors(among).astype(np.float64) @ query.astype(np.float64)
    return set(among[np.argsort(-similarities, kind="stable")[:n]].tolist())


def missed(view: GalleryView, queries: FloatArray, n: int, selection: Selection | None = None) -> int:
    """How many of the n nearest live items the view does not find."""
    among = live_positions(view) if selection is None else selection.positions
    found = view.nearest(queries, n, selection)
    return sum(
        len(nearest_by_loop(view, query, n, among) - set(row.tolist()))
        for query, row in zip(queries, found, strict=True)
    )


@pytest.mark.parametrize("n", [1, 10, 700])
def test_the_nearest_live_items_are_found(changed: GalleryView, unit: Unit, n: int) -> None:
    near_dead = np.concatenate([unit(N)[:20:5], unit(N_ADDED, seed=1)[:20:5]])
    queries = np.concatenate([near_dead, unit(8, seed=5)])
    allowed = 0 if changed.snapshot.index.is_exact else 0.02 * n * len(queries)
    assert missed(changed, queries, n) <= allowed


@pytest.mark.parametrize("spec", ["IVF64,SQ8", "IVF64,Flat", "SQ8", "IVF64,SQ8 on a GPU"])
def test_what_lies_behind_a_thousand_removed_items_is_found(
    tmp_path: Path, publish: Callable[..., int], rows: Rows, spec: str
) -> None:
    """Lists are looked into as far as the very nearest lie, and codes tell far items apart less."""
    rng, n = np.random.default_rng(0), 10
    centers = rng.normal(size=(40, 16))
    items = normalize(centers[rng.integers(0, 40, 6000)] + 0.5 * rng.normal(size=(6000, 16))).astype(
        np.float32
    )
    gallery = Gallery(tmp_path / "galleries" / "shoes")
    spec, _, gpu = spec.partition(" on ")
    publish(gallery, rows([str(i) for i in range(6000)], items), index=spec)
    order = np.argsort(-(items @ items[0]), kind="stable")
    remove_items(GalleryReader(gallery), [str(i) for i in order[:1000]])
    with stand_in_gpus([2**30]):
        view = GalleryReader(Gallery(gallery.path), IndexDevices("cuda" if gpu else "cpu")).view()
        assert missed(view, items[:1], n) <= 1


def test_ignored_tombstones_are_noticed(
    changed: GalleryView, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the test above."""
    monkeypatch.setattr(GalleryView, "is_dead", lambda _self, positions: np.zeros(positions.shape, bool))
    found = changed.nearest(unit(N)[:50:5], 50)
    monkeypatch.undo()
    assert changed.is_dead(found[found >= 0]).any()


@pytest.mark.parametrize("few", [0, 20_000], ids=["by index", "one by one"])
@pytest.mark.parametrize("share", [0.0, 0.002, 0.1, 0.9])
def test_the_nearest_selected_items_are_found(
    changed: GalleryView, unit: Unit, monkeypatch: pytest.MonkeyPatch, share: float, few: int
) -> None:
    monkeypatch.setattr(view_module, "_FEW_SELECTED", few)
    live = live_positions(changed)
    chosen = Selection(live[np.random.default_rng(3).random(len(live)) < share])
    queries = unit(8, seed=5)
    exact = few or changed.snapshot.index.is_exact or not changed.snapshot.index.can_select
    assert missed(changed, queries, 10, chosen) <= (0 if exact else 2)
    found = changed.nearest(queries, 10, chosen)
    assert chosen.holds(found[found >= 0]).all()


def test_a_query_finds_the_same_alone_and_in_a_batch(changed: GalleryView, unit: Unit) -> None:
    queries = unit(40, seed=5)
    batch = changed.nearest(queries, 20)
    for i, query in enumerate(queries):
        alone = changed.nearest(query[None], 20)[0]
        assert np.array_equal(batch[i][: len(alone)], alone)


def test_lists_name_no_dead_neighbor(changed: GalleryView) -> None:
    listed = changed.neighbor_positions(live_positions(changed))
    assert not changed.is_dead(listed[listed >= 0]).any()
    raw = changed.snapshot.neighbor_ids[1]
    assert changed.is_dead(raw.astype(np.int64)).any()


@pytest.mark.parametrize("size", [7, 1000])
def test_pages_one_after_another_give_every_live_item_once(changed: GalleryView, size: int) -> None:
    seen: list[str] = []
    after = None
    while page := changed.page(after, size):
        seen += [item["id"] for _, item in page]
        after = page[-1][0]
    built = [str(i) for i in range(N) if i % 5]
    assert seen == built + [f"new {i}" for i in range(N_ADDED) if i % 5]
