"""Sparse rows against the dense matrix they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.refine.k_reciprocal import SparseRows, ranges

MATRIX = np.array([[0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.2, 0.8, 0.0]])


@pytest.fixture
def rows() -> SparseRows:
    owners, indices = np.nonzero(MATRIX)
    return SparseRows.from_sorted(owners, indices, MATRIX[owners, indices], len(MATRIX))


def dense(rows: SparseRows) -> np.ndarray:
    matrix = np.zeros((len(rows), 4))
    matrix[rows.owners, rows.indices] = rows.values
    return matrix


def test_rows_hold_the_matrix(rows: SparseRows) -> None:
    np.testing.assert_array_equal(dense(rows), MATRIX)


@pytest.mark.parametrize("chosen", [[3, 0, 3], [1], [1, 1], [], [0, 1, 2, 3]])
def test_rows_are_taken_in_the_given_order(rows: SparseRows, chosen: list[int]) -> None:
    positions = np.array(chosen, dtype=np.int64)
    np.testing.assert_array_equal(dense(rows.take(positions)), MATRIX[positions])


def test_sizes_count_the_entries_of_each_row(rows: SparseRows) -> None:
    assert rows.sizes.tolist() == [2, 0, 1, 2]


def test_parts_are_concatenated_in_order(rows: SparseRows) -> None:
    both = SparseRows.concatenated([rows, rows.take(np.array([2]))])
    np.testing.assert_array_equal(dense(both), np.concatenate([MATRIX, MATRIX[2:3]]))


def test_ranges_follow_each_other() -> None:
    found = ranges(np.array([7, 3, 0]), np.array([2, 0, 3]))
    assert found.tolist() == [7, 8, 0, 1, 2]
