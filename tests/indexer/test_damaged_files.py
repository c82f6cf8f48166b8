"""Damaged files: whatever a disk made of a file, it is refused before a native parser can die of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.damaged_files import damages, outcome_of
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.staging import Base, Staging, contents_of
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.bundle import ModelBundle

pytestmark = pytest.mark.slow

Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]


def _snapshot(folder: Path, vectors: FloatArray, index: str = "Flat") -> Snapshot:
    n = len(vectors)
    items = pa.table(
        {
            name: [f"{name} {i}" for i in range(n)] if name != "metadata" else ["{}"] * n
            for name in ("id", "label", "uri", "metadata")
        }
    )
    rows = SnapshotRows(items, np.arange(n), vectors, build_neighbor_graph(vectors))
    fields = {"version": 1, "revision": 1, "bundle": "0" * 16, "bundle_name": "tiny", "next_number": n}
    return write_snapshot(folder / "snapshot", rows, index=index, fields=fields)


def _check(kind: str, folder: Path, *files: Path) -> None:
    n = {file.name: sum(1 for _ in damages(file.read_bytes())) for file in files}
    expected = {name: {"refused": n_damages, "not refused": []} for name, n_damages in n.items()}
    assert outcome_of(kind, folder, *files) == expected


@pytest.mark.parametrize("index", ["IVF4,Flat", "IVF4,PQ4x4fs"])
def test_a_damaged_index_is_refused(tmp_path: Path, unit: Unit, index: str) -> None:
    _snapshot(tmp_path, unit(60), index)
    _check("snapshot", tmp_path, tmp_path / "snapshot" / "initial.index")


def test_a_damaged_file_of_a_version_is_refused(tmp_path: Path, unit: Unit) -> None:
    folder = _snapshot(tmp_path, unit(60)).path
    names = ("initial.index", "items.arrow", "embeddings.npy")
    _check("snapshot", tmp_path, *(folder / name for name in names))


def test_a_damaged_refiner_is_refused(tmp_path: Path, refiner_bundle: ModelBundle) -> None:
    folder = Path(shutil.copytree(refiner_bundle.path, tmp_path / "bundle"))
    _check("bundle", tmp_path, folder / "refiner.onnx", folder / "refiner.npy")


def test_a_damaged_network_is_refused_also_when_its_bundle_was_whole(
    tmp_path: Path, tiny_bundle: ModelBundle
) -> None:
    shutil.copytree(tiny_bundle.path, tmp_path / "bundle")
    _check("network", tmp_path, tmp_path / "bundle" / "backbone.onnx")


def test_a_damaged_file_of_the_table_is_refused(live_gallery: Gallery, tmp_path: Path) -> None:
    remove_items(GalleryReader(live_gallery), ["3", "17"])
    shutil.copytree(live_gallery.path, tmp_path / "shoes")
    table = tmp_path / "shoes" / "items.lance"
    # The manifest of what is searched comes first.
    patterns = ("data/*", "_deletions/*", "_versions/*")
    _check("table", tmp_path, *(min(table.glob(pattern)) for pattern in patterns))


def test_damaged_staged_rows_are_refused(
    live_gallery: Gallery, tmp_path: Path, rows: Rows, unit: Unit
) -> None:
    shutil.copytree(live_gallery.path, tmp_path / "shoes")
    gallery = Gallery(tmp_path / "shoes")
    staging = Staging(gallery, "job")
    with staging.held():
        staging.begin("0" * 16)
        staging.note_base(Base(contents_of(gallery, None), None, 0))
        staging.append(rows(["a", "b"], unit(2)))
    patterns = ("base.arrow", "rows.lance/data/*", "rows.lance/_versions/*")
    _check("staged", tmp_path, *(min(staging.path.glob(pattern)) for pattern in patterns))


def test_an_index_that_finds_no_room_is_an_error(tmp_path: Path) -> None:
    """Faiss writes what fits, says nothing, and dies of reading it."""
    assert outcome_of("full disk", tmp_path, tmp_path) == {"refused": 512, "not refused": []}


def test_the_check_sees_a_process_that_ended_and_what_is_opened(tmp_path: Path, unit: Unit) -> None:
    """Negative control: a file that nothing is read from."""
    _snapshot(tmp_path, unit(20))
    (tmp_path / "other").write_bytes(b"nothing")
    assert len(outcome_of("snapshot", tmp_path, tmp_path / "other")["other"]["not refused"]) == 10
    assert "ended" in outcome_of("snapshot", tmp_path, tmp_path / "absent")
