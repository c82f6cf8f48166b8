"""Matrices as Arrow columns and back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import AnyArray, FloatArray

_BATCH = 8192


def as_fixed_lists(matrix: AnyArray) -> pa.FixedSizeListArray:
    """An (n, width) matrix as a column of n lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def as_matrix(column: pa.ChunkedArray) -> AnyArray:
    """A column of n lists of one length as an (n, width) matrix; null is a row of zeros."""
    array = column.combine_chunks()
    width: int = array.type.list_size
    if array.null_count:
        known = as_matrix(column.drop_null())
        matrix = np.zeros((len(array), width), known.dtype)
        matrix[array.is_valid().to_numpy(zero_copy_only=False)] = known
        return matrix
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def matrices(rows: Any, column: str) -> Iterator[AnyArray]:
    """A column of a Lance dataset as matrices of some thousand rows, in order."""
    for batch in rows.to_batches(columns=[column], batch_size=_BATCH, scan_in_order=True, batch_readahead=2):
        if batch.num_rows:
            yield as_matrix(pa.chunked_array([batch.column(0)]))


def mapped_matrix(path: Path, shape: tuple[int, int], parts: Iterable[FloatArray]) -> FloatArray:
    """An (n, width) float32 matrix in an `.npy` file, which is larger than memory may be."""
    if not shape[0]:
        return np.empty(shape, np.float32)
    path.unlink(missing_ok=True)
    matrix: FloatArray = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with path.open("r+b") as stream:
        # A disk that is full must say so now: a write through the map would end the process.
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    first = 0
    for part in parts:
        matrix[first : first + len(part)] = part
        first += len(part)
    return np.asarray(matrix)


def expect_single_rows(array: AnyArray) -> None:
    """Tell the system that rows of a memory map will be read here and there, so that it reads only these.

    Otherwise each that is not in memory brings what lies around it: 8 MB where the disk is set so, and 1.5 GB
    for the first search among a million items. Reading all rows in order takes several times longer then.
    """
    # What numpy maps has the map as its base, whatever its stubs say; not every system can be told.
    mapped: Any = array.base
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
