"""Sparse rows: nonnegative vectors over the gallery's positions, most of whose numbers are zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal.calibration.arrays import AnyFloats, AnyInts, Ints


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a matrix in compressed form (CSR).

    Attributes:
        indptr: (n + 1,) int64; row i stands at `indptr[i]:indptr[i + 1]` of the other two.
        indices: (nnz,) integer columns, ascending within a row.
        values: (nnz,) floats.
    """

    indptr: Ints
    indices: AnyInts
    values: AnyFloats

    @classmethod
    def from_sorted(cls, owners: Ints, indices: AnyInts, values: AnyFloats, n: int) -> Self:
        """Rows from entries that are sorted by row and column.

        Args:
            owners: (nnz,) row of each entry, ascending.
            indices: (nnz,) column of each entry.
            values: (nnz,) the entries.
        """
        return cls(np.searchsorted(owners, np.arange(n + 1)), indices, values)

    @classmethod
    def concatenated(cls, parts: Sequence[SparseRows]) -> Self:
        """The rows of all parts, one part after another; at least one part."""
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Ints:
        """(n,) number of entries of each row."""
        return np.diff(self.indptr)

    @property
    def owners(self) -> Ints:
        """(nnz,) row of each entry."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, rows: Ints) -> SparseRows:
        """Some rows, in the given order."""
        starts = np.asarray(self.indptr[rows])
        sizes = np.asarray(self.indptr[rows + 1]) - starts
        entries = ranges(starts, sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return SparseRows(indptr, np.asarray(self.indices[entries]), np.asarray(self.values[entries]))


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """`starts[0], starts[0] + 1, ...` for `sizes[0]` numbers, then the same for the next, as one array."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
