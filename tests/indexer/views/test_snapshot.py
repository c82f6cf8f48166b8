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
from vicinal.indexer.storage.files import FileSeal, making_in, read_sealed
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.configs.sealed_json import sealed
from vicinal.models.similarity import normalize

N_ITEMS = 40
FILES = [
    "embeddings.npy",
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


def test_opened_snapshot_holds_what_was_written(snapshot: Snapshot) -> None:
    opened, graph = Snapshot.open(snapshot.path), build_neighbor_graph(_embeddings())
    assert opened.manifest == snapshot.manifest
    assert np.array_equal(opened.embeddings, _embeddings())
    assert np.array_equal(opened.sequences, 2 * np.arange(N_ITEMS))
    assert np.array_equal(opened.neighbor_ids, graph.ids)
    assert np.array_equal(opened.neighbor_similarities, graph.similarities)
    assert opened.items(range(N_ITEMS)) == snapshot.items(range(N_ITEMS))


def test_a_version_that_holds_encodings_opens(snapshot: Snapshot, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(snapshot.path, tmp_path / "3"))
    (copy / "encoding_values.npy").write_bytes(b"encodings")
    fields = json.loads(read_sealed(copy / "snapshot.json"))
    fields["files"]["encoding_values.npy"] = FileSeal.of(copy / "encoding_values.npy").model_dump()
    (copy / "snapshot.json").write_bytes(sealed(json.dumps({**fields, "encodings_k1": 20})))
    opened = Snapshot.open(copy)
    opened.check()
    assert opened.items(range(N_ITEMS)) == snapshot.items(range(N_ITEMS))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [_flip, _truncate])
def test_damaged_file_is_refused_by_name(
    snapshot: Snapshot, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    copy = Path(shutil.copytree(snapshot.path, tmp_path / "3"))
    damage(copy / name)
    with pytest.raises(GalleryError, match=rf"{name}' is missing or damaged"):
        Snapshot.open(copy)


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


@pytest.mark.parametrize(
    ("index", "kind"), [("Flat", "auto"), ("SQ8", "SQ8"), ("HNSW16,SQ8", "auto"), ("milvus", "milvus")]
)
def test_the_next_version_has_the_kind_that_was_chosen_and_is_still_built(
    snapshot: Snapshot, index: str, kind: str
) -> None:
    assert snapshot.manifest.model_copy(update={"index": index}).index_kind == kind
