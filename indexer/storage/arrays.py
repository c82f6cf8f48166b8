"""Matrices as Arrow columns and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["as_fixed_lists", "as_matrix"]


def as_fixed_lists(matrix: npt.NDArray[np.generic]) -> pa.FixedSizeListArray:
    """An (n, width) matrix as a column of n lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def as_matrix(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of n lists of one length as an (n, width) matrix; null is a row of zeros."""
    array = column.combine_chunks()
    width: int = array.type.list_size
    if array.null_count:
        known = as_matrix(column.drop_null())
        matrix = np.zeros((len(array), width), known.dtype)
        matrix[array.is_valid().to_numpy(zero_copy_only=False)] = known
        return matrix
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)
