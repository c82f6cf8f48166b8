"""Selection: the items that a filter leaves, and the nearest among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.vector_index import nearest_rows
from vicinal.indexer.views.snapshot import places_of

# Rows that are held in memory at a time while many are compared one by one.
_BLOCK = 65_536


@dataclass(frozen=True)
class Selection:
    """Some items of a view, those that a filter selects where one is given."""

    positions: Ints
    filter: Filter | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def mask(self, n: int) -> Mask:
        """(n,) whether each of the first n positions is selected."""
        mask = np.zeros(n, dtype=bool)
        mask[self.positions[: np.searchsorted(self.positions, n)]] = True
        return mask

    def holds(self, positions: Ints) -> Mask:
        """Tell whether positions are selected; -1 is not."""
        return places_of(self.positions, positions) >= 0


def nearest_among(
    vectors: Callable[[Ints], FloatArray], queries: FloatArray, n: int, positions: Ints
) -> list[Ints]:
    """At most n positions for each query, nearest first, each row compared, up to float32 rounding."""
    found: list[Ints] = [np.empty(0, np.int64)] * len(queries)
    scores: list[FloatArray] = [np.empty(0, np.float32)] * len(queries)
    for start in range(0, len(positions), _BLOCK):
        block = positions[start : start + _BLOCK]
        rows = np.ascontiguousarray(vectors(block))
        for i, query in enumerate(queries):
            # Queries one by one: many at a time are multiplied as matrices, which round differently.
            near, places = nearest_rows(query[None], rows, min(n, len(rows)))
            best = np.concatenate([scores[i], near[0]])
            order = np.argsort(-best, kind="stable")[:n]
            found[i] = np.concatenate([found[i], block[places[0]]])[order]
            scores[i] = best[order]
    return found
