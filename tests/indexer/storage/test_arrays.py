"""Matrices as Arrow columns: what is written is read, and null is a row of zeros."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from vicinal.indexer.storage.arrays import as_fixed_lists, as_matrix


def test_a_matrix_is_read_as_it_was_written() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = pa.chunked_array([as_fixed_lists(matrix[:1]), as_fixed_lists(matrix[1:])])
    np.testing.assert_array_equal(as_matrix(column), matrix)


@pytest.mark.parametrize("is_null", [[True, True, True], [False, True, False], [True, False, False]])
def test_null_is_a_row_of_zeros(is_null: list[bool]) -> None:
    values = [None if null else [i + 1, i + 2] for i, null in enumerate(is_null)]
    column = pa.chunked_array([pa.array(values, pa.list_(pa.uint8(), 2))])
    found = as_matrix(column)
    expected = [[0, 0] if one is None else one for one in values]
    assert (found.dtype, found.tolist()) == (np.uint8, expected)
