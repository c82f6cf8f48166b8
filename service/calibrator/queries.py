"""Labelled queries: what a calibration searches for, with the right answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import FloatArray
from vicinal.service.calibrator.item_groups import PhotoGroups

__all__ = ["LabelledQueries"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelledQueries:
    """Queries whose right answer is known.

    Attributes:
        embeddings: (n, d) float32, L2-normalized.
        labels: n labels; one that the gallery lacks makes a query without a mate.
        positions: Position of each query in the gallery, or None when they come from outside.
        ids: n ids, to name examples by; None where they have none.
        groups: n names of the groups that the photos were taken in (`service.photo_groups`), None for a
            query that is a group of its own; None when nothing is grouped.
    """

    embeddings: FloatArray
    labels: npt.NDArray[np.object_]
    positions: Positions | None = None
    ids: npt.NDArray[np.object_] | None = None
    groups: npt.NDArray[np.object_] | None = None

    @classmethod
    def leave_one_out(cls, snapshot: Snapshot, groups: PhotoGroups | None = None) -> LabelledQueries:
        """Every labelled item of a gallery as a query.

        Args:
            snapshot: The gallery version.
            groups: Groups of its items.
        """
        positions = np.flatnonzero(np.array([label is not None for label in snapshot.labels], dtype=bool))
        ids = np.asarray(snapshot.item_table["id"].to_numpy(zero_copy_only=False), dtype=object)
        return cls(
            np.asarray(snapshot.embeddings[positions]),
            snapshot.labels[positions],
            positions,
            ids[positions],
            None if groups is None else groups.names[positions],
        )

    def sample(self, n: int, seed: int) -> LabelledQueries:
        """At most n of the queries, drawn without replacement."""
        if n >= len(self.labels):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self.labels), n, replace=False)))

    def take(self, rows: Positions) -> LabelledQueries:
        """Some of the queries, in the order of their rows."""
        positions = None if self.positions is None else self.positions[rows]
        ids, groups = (None if one is None else one[rows] for one in (self.ids, self.groups))
        return LabelledQueries(self.embeddings[rows], self.labels[rows], positions, ids, groups)
