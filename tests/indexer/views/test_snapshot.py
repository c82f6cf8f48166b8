"""Snapshot: what was written comes back, and a damaged file is noticed before it is searched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.storage.files import making_in
from vicinal.indexer.views.snapshot import ITEM_COLUMNS, Snapshot, SnapshotRows, write_snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.refine.k_reciprocal import ItemLists, ReciprocalGraph, reciprocal_encodings

N_ITEMS = 40
FILES = [
    "embeddings.npy",
    "encoding_indices.npy",
    "encoding_indptr.npy",
    "encoding_values.npy",
    "initial.index",
    "items.arrow",
    "neighbor_ids.npy",
    "neighbor_similarities.npy",
    "sequences.npy",
    "snapshot.json",
]
FIELDS = {"version": 3, "revision": 9, "bundle": "0123456789abcdef", "bundle_name": "tiny", "next_number": 80}


def _embeddings(n: int = N_ITEMS, seed: int = 0) -> FloatArray:
    return normalize(np.random.default_rng(seed).normal(size=(n, 8)))


def _items(n: int = N_ITEMS) -> pa.Table:
    """Every third item is unlabelled, the others have one of four labels."""
    return pa.table(
        {
            "id": [f"item {i}" for i in range(n)],
            "label": pa.array([None if i % 3 == 0 else f"class {i % 4}" for i in range(n)], pa.string()),
            "uri": [f"pictures/{i}.jpg" for i in range(n)],
            "metadata": [f'{{"price": {i}}}' for i in range(n)],
        }
    )


def _write(path: Path, embeddings: FloatArray | None = None, index: str = "auto") -> Snapshot:
    vectors = _embeddings() if embeddings is None else embeddings
    n = len(vectors)
    rows = SnapshotRows(_items(n), 2 * np.arange(n), vectors, build_neighbor_graph(vectors))
    return write_snapshot(path, rows, index=index, fields=FIELDS)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return _write(tmp_path_factory.mktemp("versions") / "3")


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x80
    file.write_bytes(content)


def _truncate(file: Path) -> None:
    # Two bytes, since the last of the manifest is a line feed that says nothing.
    file.write_bytes(file.read_bytes()[:-2])


def test_snapshot_is_a_folder_of_the_documented_files(snapshot: Snapshot) -> None:
    assert sorted(file.name for file in snapshot.path.iterdir()) == FILES


def test_opened_snapshot_holds_what_was_written(snapshot: Snapshot) -> None:
    opened, graph = Snapshot.open(snapshot.path), build_neighbor_graph(_embeddings())
    assert opened.manifest == snapshot.manifest
    assert np.array_equal(opened.embeddings, _embeddings())
    assert np.array_equal(opened.sequences, 2 * np.arange(N_ITEMS))
    assert np.array_equal(opened.neighbor_ids, graph.ids)
    assert np.array_equal(opened.neighbor_similarities, graph.similarities)
    assert opened.items(range(N_ITEMS)) == snapshot.items(range(N_ITEMS))


def test_opened_snapshot_holds_the_k_reciprocal_encodings_of_its_graph(snapshot: Snapshot) -> None:
    opened, graph = Snapshot.open(snapshot.path), build_neighbor_graph(_embeddings())
    lists = ItemLists(_embeddings(), graph.ids, graph.similarities)
    expected = reciprocal_encodings(ReciprocalGraph(lists, N_ITEMS, opened.manifest.encodings_k1))
    np.testing.assert_array_equal(opened.encodings.indptr, expected.indptr)
    np.testing.assert_array_equal(opened.encodings.indices, expected.indices)
    np.testing.assert_array_equal(opened.encodings.values, expected.values)


def test_snapshot_from_before_the_encodings_is_refused_so_that_it_is_made_again(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(snapshot.path, tmp_path / "3"))
    fields = json.loads((copy / "snapshot.json").read_text())
    del fields["encodings_k1"]
    (copy / "snapshot.json").write_text(json.dumps(fields))
    with pytest.raises(GalleryError, match="missing or damaged"):
        Snapshot.open(copy)


def test_manifest_counts_items_labels_and_dimensions(snapshot: Snapshot) -> None:
    manifest = snapshot.manifest
    assert (manifest.n_items, manifest.n_labels, manifest.dim, manifest.index) == (N_ITEMS, 4, 8, "Flat")
    assert len(snapshot) == N_ITEMS


def test_manifest_keeps_version_and_bundle(snapshot: Snapshot) -> None:
    assert {name: getattr(snapshot.manifest, name) for name in FIELDS} == FIELDS


def test_arrays_are_memory_maps_that_nobody_can_change(snapshot: Snapshot) -> None:
    for array in (snapshot.embeddings, snapshot.neighbor_ids, snapshot.neighbor_similarities):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_index_finds_each_item_by_its_embedding(snapshot: Snapshot) -> None:
    found = snapshot.index.search(np.asarray(snapshot.embeddings), 1)
    assert found[:, 0].tolist() == list(range(N_ITEMS))


def test_chosen_index_is_kept(tmp_path: Path) -> None:
    opened = Snapshot.open(_write(tmp_path / "3", index="IVF4,Flat").path)
    assert (opened.manifest.index, opened.index.spec) == ("IVF4,Flat", "IVF4,Flat")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [_flip, _truncate, Path.unlink])
def test_damaged_file_is_refused_by_name(
    snapshot: Snapshot, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    copy = Path(shutil.copytree(snapshot.path, tmp_path / "3"))
    damage(copy / name)
    with pytest.raises(GalleryError, match=rf"{name}' is missing or damaged"):
        Snapshot.open(copy)


def test_file_of_another_version_is_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(snapshot.path, tmp_path / "3"))
    np.save(copy / "embeddings.npy", _embeddings(seed=1))
    with pytest.raises(GalleryError, match=r"embeddings\.npy"):
        Snapshot.open(copy)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="missing or damaged"):
        Snapshot.open(tmp_path / "absent")


@pytest.mark.parametrize("is_held", [False, True])
def test_writing_replaces_an_older_snapshot_and_removes_leftovers(tmp_path: Path, is_held: bool) -> None:
    """While somebody makes something beside it, a half-written folder may be that one's."""
    _write(tmp_path / "3")
    (tmp_path / "3.abc.partial").mkdir()
    with making_in(tmp_path) if is_held else nullcontext():
        _write(tmp_path / "3", _embeddings(5))
    left = ["3", "3.abc.partial"] if is_held else ["3"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == left
    assert len(Snapshot.open(tmp_path / "3")) == 5


def test_snapshot_whose_index_cannot_be_built_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="nonsense"):
        _write(tmp_path / "3", index="nonsense")
    assert not (tmp_path / "3").exists()


def test_items_come_in_the_asked_order_with_parsed_metadata(snapshot: Snapshot) -> None:
    last, first = snapshot.items([N_ITEMS - 1, 0])
    assert tuple(last) == ITEM_COLUMNS
    assert (last["id"], last["metadata"]) == ("item 39", {"price": 39})
    assert (first["id"], first["label"], first["uri"]) == ("item 0", None, "pictures/0.jpg")


def test_no_positions_give_no_items(snapshot: Snapshot) -> None:
    assert snapshot.items([]) == []


def test_items_take_positions_from_a_search(snapshot: Snapshot) -> None:
    found = snapshot.index.search(np.asarray(snapshot.embeddings[:1]), 3)[0]
    assert snapshot.items(found)[0]["id"] == "item 0"


def test_labels_are_one_an_item_and_none_where_missing(snapshot: Snapshot) -> None:
    assert snapshot.labels.shape == (N_ITEMS,)
    assert snapshot.labels[:4].tolist() == [None, "class 1", "class 2", None]


def test_position_is_where_the_item_stands(snapshot: Snapshot) -> None:
    view = GalleryView.of(snapshot)
    assert [view.position(f"item {i}") for i in (0, 17, N_ITEMS - 1)] == [0, 17, N_ITEMS - 1]


@pytest.mark.parametrize("item_id", ["absent", "", "item", "ITEM 0"])
def test_position_of_an_unknown_item_is_refused(snapshot: Snapshot, item_id: str) -> None:
    with pytest.raises(KeyError):
        GalleryView.of(snapshot).position(item_id)
