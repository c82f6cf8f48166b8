"""Copies among what was found: photos that show again, almost pixel by pixel, what a better one shows."""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import Ints
from vicinal.indexer.hygiene import CLOSE_SIMILARITY, SAME_PICTURE, correlations
from vicinal.indexer.storage.item_table import ItemTable
from vicinal.indexer.views.view import GalleryView


def copies_among(view: GalleryView, table: ItemTable, positions: Ints) -> list[int]:
    """Place of the first item that each of n items is a copy of, -1 where it is of none before it.

    Copies have the same file, or are as close in the embedding and at 16 x 16 pixels as near duplicates are.
    `positions` are (n,) different items, the better ones first.
    """
    n = len(positions)
    if n < 2:
        return [-1] * n
    sequences = view.sequences(positions)
    names = ["sequence", "content_sha256", "signature"]
    rows = {one["sequence"]: one for one in table.rows(view.revision, sequences, names).to_pylist()}
    found = [rows[int(one)] for one in sequences]
    contents = [one["content_sha256"] for one in found]
    same = np.array([[one == other for other in contents] for one in contents])
    # What came as an embedding has no picture.
    seen = np.flatnonzero([one["signature"] is not None for one in found])
    if len(seen) > 1:
        signatures = np.array([found[one]["signature"] for one in seen], dtype=np.uint8)
        vectors = view.vectors(positions[seen])
        is_near = (vectors @ vectors.T >= CLOSE_SIMILARITY) & (correlations(signatures) >= SAME_PICTURE)
        same[np.ix_(seen, seen)] |= is_near
    first = [-1] * n
    for place in range(1, n):
        before = [other for other in np.flatnonzero(same[place, :place]) if first[other] < 0]
        if before:
            first[place] = int(before[0])
    return first
