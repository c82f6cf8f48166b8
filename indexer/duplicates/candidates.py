"""Candidates: pairs of items that may be copies, by the index of their cuts and by the neighbor lists."""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import Bytes, FloatArray, Ints
from vicinal.indexer.duplicates.signatures import BOXES, turned_signatures, unit_boxes
from vicinal.indexer.graph.vector_index import FaissIndex
from vicinal.models.progress import OnProgress, no_progress

# Fetched an orientation, and kept an item: 99 of 100 crops have their original among them.
_N_FETCHED = 24
_N_KEPT = 12
_BLOCK = 512


class CutIndex:
    """Cuts of images, (n, 768) uint8 of 16 x 16 RGB pixels, to be searched for images in any orientation."""

    def __init__(self, signatures: Bytes) -> None:
        self._signatures = signatures
        blocks = [
            unit_boxes(signatures[start : start + _BLOCK]) for start in range(0, len(signatures), _BLOCK)
        ]
        cuts = np.concatenate(blocks).reshape(len(signatures) * len(BOXES), -1)
        self._index = FaissIndex.build(cuts)

    def candidates(self, queries: Bytes, *, own: bool = False, on_progress: OnProgress = no_progress) -> Ints:
        """(m, 2) query and image that it is like, or of which it may be a crop, at most 12 for each query."""
        found = [np.empty((0, 2), np.int64)]
        for start in range(0, len(queries), _BLOCK):
            found.append(self._block(queries[start : start + _BLOCK], start, own=own))
            on_progress("candidates", min(start + _BLOCK, len(queries)), len(queries))
        return np.concatenate(found)

    def _block(self, queries: Bytes, start: int, *, own: bool) -> Ints:
        turned = turned_signatures(queries)
        n, n_turns, dim = turned.shape
        rows = self._index.search(turned.reshape(n * n_turns, dim), _N_FETCHED)
        items = np.where(rows < 0, -1, rows // len(BOXES)).reshape(n, -1)
        pairs = np.stack([np.repeat(np.arange(n), items.shape[1]), items.ravel()], axis=1)
        pairs = np.unique(pairs[pairs[:, 1] >= 0], axis=0)
        if own:
            pairs = pairs[pairs[:, 0] + start != pairs[:, 1]]
        likeness = self._likeness(turned, pairs)
        order = np.lexsort((-likeness, pairs[:, 0]))
        pairs = pairs[order]
        rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
        return pairs[rank < _N_KEPT] + [start, 0]

    def _likeness(self, turned: FloatArray, pairs: Ints) -> FloatArray:
        """(m,) correlation of the query with the cut that it is most like."""
        items, places = np.unique(pairs[:, 1], return_inverse=True)
        cuts = unit_boxes(self._signatures[items])
        best = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _BLOCK):
            some = slice(start, start + _BLOCK)
            products = turned[pairs[some, 0]] @ cuts[places[some]].transpose(0, 2, 1)
            best[some] = products.max(axis=(1, 2))
        return best


def unordered(*pairs: Ints) -> Ints:
    """Pairs of different items, each once, the lower position first."""
    together = np.sort(np.concatenate(pairs), axis=1)
    return np.unique(together[together[:, 0] != together[:, 1]], axis=0)
