"""Segment: the items that were added since a version was built, searched exactly beside its index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.indexer.views.snapshot import ITEM_COLUMNS
from vicinal.models.similarity import FloatArray

__all__ = ["Segment", "SegmentBuilder"]

_Number = TypeVar("_Number", bound=np.generic)
# Many small Arrow tables are slow to take rows from; from here on they are made one.
_MOST_CHUNKS = 32
_ITEMS = pa.schema([(name, pa.string()) for name in ITEM_COLUMNS])


@dataclass(frozen=True)
class Segment:
    """Added rows, removed ones among them, in order of addition.

    Attributes:
        sequences: (m,) int64, ascending.
        embeddings: (m, d) float32, L2-normalized.
        neighbor_positions: (m, K) int64 positions in the view, -1 where there is none.
        neighbor_similarities: (m, K) float32.
        items: Table with `ITEM_COLUMNS`.
    """

    sequences: npt.NDArray[np.int64]
    embeddings: FloatArray
    neighbor_positions: npt.NDArray[np.int64]
    neighbor_similarities: FloatArray
    items: pa.Table

    def __len__(self) -> int:
        return len(self.sequences)


class SegmentBuilder:
    """Grows a segment; segments that were given out before stay as they are.

    Args:
        dim: Length of the embeddings.
    """

    def __init__(self, dim: int) -> None:
        self._sequences = _Growing(np.empty(0, np.int64))
        self._embeddings = _Growing(np.empty((0, dim), np.float32))
        self._positions = _Growing(np.empty((0, N_NEIGHBORS), np.int64))
        self._similarities = _Growing(np.empty((0, N_NEIGHBORS), np.float32))
        self._items = _ITEMS.empty_table()

    def extend(self, added: Segment) -> None:
        """Append rows."""
        self._sequences.extend(added.sequences)
        self._embeddings.extend(added.embeddings)
        self._positions.extend(added.neighbor_positions)
        self._similarities.extend(added.neighbor_similarities)
        items = pa.concat_tables([self._items, added.items.cast(_ITEMS)])
        crowded = items["id"].num_chunks > _MOST_CHUNKS
        self._items = items.combine_chunks() if crowded else items

    def segment(self) -> Segment:
        """The rows so far."""
        return Segment(
            self._sequences.rows,
            self._embeddings.rows,
            self._positions.rows,
            self._similarities.rows,
            self._items,
        )


class _Growing(Generic[_Number]):
    """An array that grows in amortized constant time a row; only rows beyond the last are ever written."""

    def __init__(self, rows: npt.NDArray[_Number]) -> None:
        self._buffer = rows
        self._n = len(rows)

    @property
    def rows(self) -> npt.NDArray[_Number]:
        return self._buffer[: self._n]

    def extend(self, rows: npt.NDArray[Any]) -> None:
        n = self._n + len(rows)
        if n > len(self._buffer):
            grown = np.empty((max(n, 2 * self._n), *rows.shape[1:]), self._buffer.dtype)
            grown[: self._n] = self.rows
            self._buffer = grown
        self._buffer[self._n : n] = rows
        self._n = n
