"""Contexts of a training set: found once, before training, within each space (numpy)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.refine.nearest import nearest_items
from vicinal.refine.training.embedding_set import EmbeddingSet

__all__ = ["TrainingContexts"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrainingContexts:
    """Neighbors of each item of a set, as positions in the set, -1 where a space has fewer.

    Attributes:
        nearest: (n, k) nearest others of its space.
        without_mates: (n, k) nearest items of its space that are of another class.
    """

    nearest: Ints
    without_mates: Ints

    @classmethod
    def find(cls, items: EmbeddingSet, k: int) -> TrainingContexts:
        """Find both kinds of neighbors of every item."""
        own = np.arange(len(items))
        return cls(_within_spaces(items, k, own), _within_spaces(items, k, items.class_ids))


def _within_spaces(items: EmbeddingSet, k: int, groups: Ints) -> Ints:
    found = np.full((len(items), k), -1, np.int64)
    for positions in items.positions_by_space():
        unit, own = items.embeddings[positions], groups[positions]
        nearest, _ = nearest_items(unit, unit, k, query_groups=own, item_groups=own)
        found[positions] = np.where(nearest >= 0, positions[nearest], -1)
    return found
