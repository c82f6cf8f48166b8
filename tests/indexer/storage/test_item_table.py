"""Item table: atomic changes, and what happened between two of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.indexer.storage.item_table import Difference, ItemTable, as_fixed_lists

IDENTITY = {"bundle": "0123456789abcdef", "bundle_name": "tiny"}
IDS = ["a", "b", "c", "d", "e"]


def _rows(ids: Sequence[str], **metadata: object) -> pa.Table:
    n = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "label": pa.array([f"label of {item_id}" for item_id in ids], pa.string()),
            "uri": pa.array([f"{item_id}.jpg" for item_id in ids], pa.string()),
            "metadata": pa.array([json.dumps({"id": item_id, **metadata}) for item_id in ids], pa.string()),
            "thumbnail": pa.array([item_id.encode() for item_id in ids], pa.binary()),
            "embedding": as_fixed_lists(np.full((n, 4), 0.5, np.float32)),
        }
    )


def _complete(ids: Sequence[str], sequences: Sequence[int], patch: int = -1, **metadata: object) -> pa.Table:
    """Rows as a live change writes them."""
    rows, n = _rows(ids, **metadata), len(ids)
    for name, column in {
        "sequence": pa.array(sequences, pa.int64()),
        "patch": pa.array([patch] * n, pa.int64()),
        "neighbor_ids": as_fixed_lists(np.full((n, N_NEIGHBORS), -1, np.int64)),
        "neighbor_similarities": as_fixed_lists(np.full((n, N_NEIGHBORS), -np.inf, np.float32)),
    }.items():
        rows = rows.append_column(name, column)
    return rows


def _sequences(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def _ids(table: ItemTable, version: int) -> list[str]:
    return list(table.columns(version, ["id"])["id"].to_pylist())


def _summary(difference: Difference) -> tuple[list[int], list[str], list[str]]:
    added, patched = (rows["id"].to_pylist() for rows in (difference.added, difference.patched))
    return difference.removed.tolist(), added, patched


@pytest.fixture
def table(tmp_path: Path) -> ItemTable:
    made = ItemTable(tmp_path / "items.lance", "shoes")
    made.start(_rows(IDS[:3]), IDENTITY)
    made.append(_rows(IDS[3:]))
    return made


@pytest.fixture
def built(table: ItemTable) -> int:
    n = len(IDS)
    ids = np.full((n, N_NEIGHBORS), -1, np.int32)
    return table.add_neighbors(ids, np.full((n, N_NEIGHBORS), -np.inf, np.float32))


def test_a_change_adds_and_removes_in_one_version(table: ItemTable, built: int) -> None:
    changed = table.change(built, _complete(["f", "g"], [5, 6]), _sequences(1, 3))
    assert changed == built + 1
    assert _ids(table, changed) == ["a", "c", "e", "f", "g"]
    assert _ids(table, built) == IDS


def test_a_commit_that_never_became_part_of_the_gallery_is_left_behind(table: ItemTable, built: int) -> None:
    """As after a crash between the commit and the pointer, or in an index job."""
    table.change(built, _complete(["lost"], [5]), _sequences(0))
    changed = table.change(built, _complete(["f"], [5]), _sequences(4))
    assert _ids(table, changed) == ["a", "b", "c", "d", "f"]


def test_the_difference_names_what_is_gone_new_and_patched(table: ItemTable, built: int) -> None:
    first = table.change(built, _complete(["f", "g"], [5, 6]), _sequences(0))
    second = table.change(first, _complete(["c"], [2], patch=7), _sequences(2))
    third = table.change(second, None, _sequences(5))
    assert _summary(table.difference(built, third, 5)) == ([0], ["g"], ["c"])
    assert _summary(table.difference(first, third, 7)) == ([5], [], ["c"])
    assert _summary(table.difference(third, third, 8)) == ([], [], [])


def test_merging_small_files_changes_no_row(table: ItemTable, built: int) -> None:
    version = built
    for place in range(6):
        version = table.change(version, _complete([f"new {place}"], [5 + place]), _sequences())
    before = _ids(table, version)
    merged = table.merge_small_files(version)
    assert table.n_small_files(merged) < table.n_small_files(version)
    assert _ids(table, merged) == before
    assert _summary(table.difference(version, merged, 11)) == ([], [], [])
    assert _summary(table.difference(built, merged, 5))[1] == before[5:]
