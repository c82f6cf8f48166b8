"""Vectors of a version that its engine holds, for a machine that does not: fetched by row, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, FloatArray, Ints

_BLOCK = 65_536


class FetchedVectors:
    """(n, d) float32 array of which the rows that are asked for are fetched; `np.asarray` fetches all."""

    dtype = np.dtype(np.float32)
    base = None
    is_fetched = True

    def __init__(self, fetch: Callable[[Ints], FloatArray], shape: tuple[int, int]) -> None:
        self._fetch = fetch
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FloatArray:
        return self.take(np.arange(len(self))[rows])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        del copy
        blocks = [self[start : start + _BLOCK] for start in range(0, len(self), _BLOCK)]
        return np.concatenate([np.empty((0, self.shape[1]), np.float32), *blocks]).astype(dtype or self.dtype)

    def take(self, rows: AnyArray, axis: int = 0) -> FloatArray:
        """(..., d) vectors of (...) rows, each fetched once; any values at -1."""
        del axis
        needed, places = np.unique(rows.ravel() % max(1, len(self)), return_inverse=True)
        fetched = self._fetch(needed.astype(np.int64)) if len(needed) else np.empty((0, self.shape[1]))
        return fetched.astype(np.float32)[places].reshape(*rows.shape, self.shape[1])


def rows_at(vectors: FloatArray | FetchedVectors, rows: AnyArray) -> FloatArray:
    """(..., d) vectors of (...) rows, mapped or fetched; any values at -1."""
    # What is mapped is quicker as a plain array.
    return (vectors if isinstance(vectors, FetchedVectors) else np.asarray(vectors)).take(rows, axis=0)
