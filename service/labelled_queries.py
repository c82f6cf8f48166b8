"""Labelled queries: what a calibration searches for, with the right answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexer.snapshot import Snapshot
from models.similarity import FloatArray

__all__ = ["LabelledQueries"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelledQueries:
    """Queries whose right answer is known.

    Attributes:
        embeddings: (n, d) float32, L2-normalized.
        labels: n labels; one that the gallery lacks makes a query without a mate.
        positions: Position of each query in the gallery, or None when they come from outside.
    """

    embeddings: FloatArray
    labels: npt.NDArray[np.object_]
    positions: Positions | None = None

    @classmethod
    def leave_one_out(cls, snapshot: Snapshot) -> LabelledQueries:
        """Every labelled item of a gallery as a query."""
        positions = np.flatnonzero(np.array([label is not None for label in snapshot.labels], dtype=bool))
        return cls(np.asarray(snapshot.embeddings[positions]), snapshot.labels[positions], positions)

    def sample(self, n: int, seed: int) -> LabelledQueries:
        """At most n of the queries, drawn without replacement."""
        if n >= len(self.labels):
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.labels), n, replace=False))
        positions = None if self.positions is None else self.positions[chosen]
        return LabelledQueries(self.embeddings[chosen], self.labels[chosen], positions)
