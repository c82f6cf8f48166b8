"""Twins: items that show the very picture of a query, such as the photos of the gallery themselves.

A query is searched as if its twins were not there, nor what was taken with them: tomorrow's photos have none,
and every search would find them. Where nothing of its label is left, the query counts in no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vicinal.calibration import CalibrationError
from vicinal.calibration.arrays import Bytes, FloatArray, Ints
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import CLOSE_SIMILARITY, are_near_equal
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits, find_visits

# Nearest items of a query among which its twins are; of more copies the others are of their visit.
_NEAREST = 32
_TOGETHER = 512
_MOST_NAMED = 3


@dataclass(frozen=True)
class GalleryPictures:
    """Pictures of a built version, as the index kept them, and what tells which were taken together."""

    gallery: Gallery
    snapshot: Snapshot
    visits_by: str = "auto"

    def twins(self, embeddings: FloatArray, signatures: Bytes | None) -> list[Ints]:
        """Positions of the twins of each of (n, d) queries; signatures are (n, 768), None for no pictures."""
        view, found = GalleryView.of(self.snapshot), list[Ints]()
        for start in range(0, len(embeddings), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            near = view.nearest(embeddings[some], min(_NEAREST, len(view)))
            cosines = view.products(embeddings[some], near)
            rows, columns = np.nonzero(cosines >= CLOSE_SIMILARITY)
            pairs = np.zeros((2, len(rows), 768), np.uint8)
            if signatures is not None and len(rows):
                pairs[:] = signatures[some][rows], self._signatures(view, near[rows, columns])
            is_twin = np.zeros(near.shape, dtype=bool)
            is_twin[rows, columns] = are_near_equal(cosines[rows, columns], *pairs)
            found += [positions[are_twins] for positions, are_twins in zip(near, is_twin, strict=True)]
        return found

    def _signatures(self, view: GalleryView, positions: Ints) -> Bytes:
        known, places = np.unique(positions, return_inverse=True)
        kept = self.gallery.table.rows(view.revision, view.sequences(known), ["signature"])
        return np.asarray(as_matrix(kept["signature"])[places])

    def left_out(self, twins: Ints) -> Ints:
        """Ascending positions of the twins of a query, and of what was taken together with them."""
        visits = self._visits if len(twins) else None
        more = [] if visits is None else [visits.members(visits.names[one]) for one in twins]
        return np.unique(np.concatenate([twins, *more]))

    @cached_property
    def _visits(self) -> Visits | None:
        return find_visits(self.visits_by, self.gallery, self.snapshot)


def searched_apart(
    queries: Sequence[LabelledQueries], pictures: Sequence[GalleryPictures]
) -> list[LabelledQueries]:
    """The same queries of one or more versions, to be searched for without their twins and named where they
    have such, but for those of which one version has nothing else; CalibrationError where none is left.
    """
    named, is_lost, found = dict[int, str](), np.zeros(len(queries[0].labels), bool), list[LabelledQueries]()
    for asked, own in zip(queries, pictures, strict=True):
        twins, labels = own.twins(asked.embeddings, asked.signatures), own.snapshot.labels
        left_out, ids = np.empty(len(twins), dtype=object), own.snapshot.item_table["id"]
        n_items = Counter(labels.tolist())
        for row, items in enumerate(twins):
            left_out[row] = own.left_out(items)
            if len(items):
                named.setdefault(row, ids[int(items[0])].as_py())
                label = asked.labels[row]
                is_lost[row] |= 0 < n_items[label] == np.sum(labels[left_out[row]] == label)
        found.append(replace(asked, left_out=left_out))
    if is_lost.all():
        raise CalibrationError(
            f"all {len(is_lost):,} queries are pictures of the gallery's own items, which has no others of "
            "their labels: search for other photos"
        )
    names, kept = queries[0].ids, np.flatnonzero(~is_lost)
    pairs = [(str(row if names is None else names[row]), item) for row, item in named.items()]
    warnings = twins_told(pairs, len(is_lost), int(is_lost.sum()))
    return [replace(one, warnings=(*one.warnings, *warnings)).take(kept) for one in found]


def twins_told(named: Sequence[tuple[str, str]], n: int, n_lost: int = 0) -> tuple[str, ...]:
    """Warning of those of n queries that are pictures of items, by both names; `n_lost` lost their label."""
    if not named:
        return ()
    shown = ", ".join(f"'{query:.60}' is '{item:.60}'" for query, item in named[:_MOST_NAMED])
    more = ", …" if len(named) > _MOST_NAMED else ""
    lost = f"; so many lose their label by that, and count in no rate: {n_lost:,}" if n_lost else ""
    return (
        f"queries that are pictures of the gallery's own items: {len(named):,} of {n:,} ({shown}{more}), "
        f"each searched for as if that item and those of its visit were not there{lost}",
    )
