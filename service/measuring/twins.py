"""Twins: items that show the very picture of a query, such as the photos of the gallery themselves.

A query is searched as if its twins were not there, nor what was taken with them: tomorrow's photos have none,
and every search would find them. Where nothing of its label is left, the query counts in no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vicinal.calibration import CalibrationError
from vicinal.calibration.arrays import Bytes, FloatArray, Ints, Mask
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import CLOSE_SIMILARITY, are_near_equal, are_same_pictures
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.service.measuring.queries import NO_PICTURE, LabelledQueries
from vicinal.service.measuring.visits import Visits, find_visits
from vicinal.service.words import shortened

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

    @cached_property
    def _visits(self) -> Visits | None:
        return find_visits(self.visits_by, self.gallery, self.snapshot)

    def are_same(self, first: Ints, second: Ints) -> Mask:
        """Tell pair by pair whether items are almost the same picture."""
        kept = self.gallery.table.columns(self.snapshot.manifest.revision, ["signature"])
        signatures = as_matrix(kept["signature"])
        return are_same_pictures(signatures[first], signatures[second])

    def twins(self, embeddings: FloatArray, signatures: Bytes | None) -> list[Ints]:
        """Positions of the twins of each of (n, d) queries, the nearest first; signatures are (n, 768)."""
        given = np.broadcast_to(NO_PICTURE, (len(embeddings), 768)) if signatures is None else signatures
        chunks = [slice(start, start + _TOGETHER) for start in range(0, len(embeddings), _TOGETHER)]
        return [one for rows in chunks for one in self._twins(embeddings[rows], given[rows])]

    def _twins(self, embeddings: FloatArray, signatures: Bytes) -> Iterator[Ints]:
        view = GalleryView.of(self.snapshot)
        near = view.nearest(embeddings, min(_NEAREST, len(view)))
        cosines = view.products(embeddings, near)
        rows, columns = np.nonzero(cosines >= CLOSE_SIMILARITY)
        pairs = signatures[rows], self._signatures(view, near[rows, columns], signatures)
        is_twin = np.zeros(near.shape, dtype=bool)
        is_twin[rows, columns] = are_near_equal(cosines[rows, columns], *pairs)
        for positions, alike, are_twins in zip(near, cosines, is_twin, strict=True):
            order = np.argsort(-alike, kind="stable")
            yield positions[order][are_twins[order]]

    def _signatures(self, view: GalleryView, positions: Ints, given: Bytes) -> Bytes:
        if not len(positions) or not given.any():
            # Where queries have no picture those of items tell nothing.
            return np.zeros((len(positions), 768), np.uint8)
        known, places = np.unique(positions, return_inverse=True)
        kept = self.gallery.table.rows(view.revision, view.sequences(known), ["signature"])
        return np.asarray(as_matrix(kept["signature"])[places])

    def left_out(self, twins: Ints) -> Ints:
        """Ascending positions of the twins of a query, and of what was taken together with them."""
        visits = self._visits if len(twins) else None
        more = [] if visits is None else [visits.members(visits.names[one]) for one in twins]
        return np.unique(np.concatenate([twins, *more]))


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
    warnings, kept = _told(queries[0], named, int(is_lost.sum())), np.flatnonzero(~is_lost)
    return [replace(one, warnings=(*one.warnings, *warnings)).take(kept) for one in found]


def _told(queries: LabelledQueries, named: dict[int, str], n_lost: int) -> Iterator[str]:
    if named:
        names = range(len(queries.labels)) if queries.ids is None else queries.ids
        shown = [f"'{shortened(str(names[row]))}' is '{shortened(item)}'" for row, item in named.items()]
        more = ", …" if len(shown) > _MOST_NAMED else ""
        lost = f"; so many lose their label by that, and count in no rate: {n_lost:,}" if n_lost else ""
        yield (
            f"queries that are pictures of the gallery's own items: {len(named):,} of {len(names):,} "
            f"({', '.join(shown[:_MOST_NAMED])}{more}), each searched for as if that item and those of its "
            f"visit were not there{lost}"
        )
