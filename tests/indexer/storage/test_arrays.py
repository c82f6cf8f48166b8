"""Matrices as Arrow columns: what is written is read, and null is a row of zeros."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from tests.disks import mounted
from tests.mappings import is_read_at_random
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.storage.item_table import (
    as_fixed_lists,
    as_matrix,
    expect_single_rows,
    mapped_matrix,
    matrices,
)


@pytest.mark.parametrize("is_null", [[True, True, True], [False, True, False], [True, False, False]])
def test_null_is_a_row_of_zeros(is_null: list[bool]) -> None:
    values = [None if null else [i + 1, i + 2] for i, null in enumerate(is_null)]
    column = pa.chunked_array([pa.array(values, pa.list_(pa.uint8(), 2))])
    found = as_matrix(column)
    expected = [[0, 0] if one is None else one for one in values]
    assert (found.dtype, found.tolist()) == (np.uint8, expected)


def test_a_mapped_matrix_holds_all_parts_in_order(tmp_path: Path) -> None:
    path, expected = tmp_path / "a.npy", np.arange(21, dtype=np.float32).reshape(7, 3)
    path.write_bytes(b"what was there")
    matrix = mapped_matrix(path, (7, 3), iter([expected[:4], expected[4:6], expected[6:]]))
    np.testing.assert_array_equal(matrix, expected)
    np.testing.assert_array_equal(np.load(path), expected)
    assert mapped_matrix(tmp_path / "none.npy", (0, 3), iter([])).shape == (0, 3)


@pytest.mark.slow
def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    def parts() -> Iterator[FloatArray]:
        raise AssertionError
        yield

    with mounted(tmp_path / "disk", "64k") as disk, pytest.raises(OSError, match="No space left"):
        mapped_matrix(disk / "a.npy", (1000, 100), parts())


def test_a_column_of_a_dataset_comes_in_order(tmp_path: Path) -> None:
    expected = np.arange(40_000, dtype=np.float32).reshape(20_000, 2)
    rows = lance.write_dataset(pa.table({"a": as_fixed_lists(expected)}), tmp_path / "a.lance")
    parts = list(matrices(rows, "a"))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_a_memory_map_is_read_row_by_row_only_when_that_was_said(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((100, 8), np.float32))
    one, other = (np.load(tmp_path / "rows.npy", mmap_mode="r") for _ in range(2))
    expect_single_rows(one)
    assert is_read_at_random(one)
    assert not is_read_at_random(other)
