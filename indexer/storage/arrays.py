"""Matrices as Arrow columns and back, and places in ascending arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["as_fixed_lists", "as_matrix", "places_of"]


def as_fixed_lists(matrix: npt.NDArray[np.generic]) -> pa.FixedSizeListArray:
    """An (n, width) matrix as a column of n lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def as_matrix(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of n lists of one length as an (n, width) matrix."""
    array = column.combine_chunks()
    width: int = array.type.list_size
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def places_of(ascending: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where values stand in an ascending array, -1 where they do not; of the shape of the values."""
    if not len(ascending):
        return np.full(np.shape(values), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[places] == values, places, -1)
