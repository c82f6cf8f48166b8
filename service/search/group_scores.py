"""Group scores: from the scores of a query's candidates to one score for each group of items.

A group scores as its best item, or as a label does by the gallery's own metric (`calibration.lda`). A search
decides among the groups of a fixed number of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import AnyArray, AnyInts, Floats, Ints


@dataclass(frozen=True)
class GroupedCandidates:
    """Groups of the candidates of a batch of queries, best first, ties by their best item's rank."""

    codes: Ints  # (B, g) number of each group, -1 for padding
    scores: Floats  # (B, g) scores in [0, 1], -inf for padding
    sizes: Ints  # (B, g) items of the group that the search sees
    best: Ints  # (B, g) column of its best item among the candidates, -1 for padding


def group_scores(
    scores: Floats, codes: AnyInts, sizes: AnyInts, by_label: Floats | None = None
) -> GroupedCandidates:
    """Score the groups of each query's candidates, (B, n), best first: scores in [0, 1], -inf for padding,
    codes of groups, -1 for padding, and their sizes. `by_label` is the score of each item's whole group,
    which else is that of its best item.
    """
    rows, columns = np.nonzero((codes >= 0) & np.isfinite(scores if by_label is None else by_label))
    # Stable, so that the items of a group stay best first.
    order = np.lexsort((codes[rows, columns], rows))
    rows, columns = rows[order], columns[order]
    numbers = codes[rows, columns].astype(np.int64)
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(rows) != 0) | (np.diff(numbers) != 0)
    rows, columns, numbers = rows[is_new], columns[is_new], numbers[is_new]
    found = (scores if by_label is None else by_label)[rows, columns].astype(np.float64)
    order = np.lexsort((columns, -found, rows))
    counts = np.bincount(rows, minlength=len(scores))
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = len(scores), int(counts.max(initial=1))

    def table(values: AnyArray, filling: float) -> AnyArray:
        filled = np.full(shape, filling, dtype=values.dtype)
        filled[rows, places] = values[order]
        return filled

    return GroupedCandidates(
        table(numbers, -1),
        table(found, -np.inf),
        table(sizes[rows, columns].astype(np.int64), 0),
        table(columns, -1),
    )
