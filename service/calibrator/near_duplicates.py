"""Near duplicates of a calibration: whether an item and its best mate are almost the same picture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import are_same_pictures
from vicinal.indexer.views.snapshot import Snapshot

__all__ = ["picture_comparison"]

Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def picture_comparison(gallery: Gallery, snapshot: Snapshot) -> Callable[[Positions, Positions], Bools]:
    """A function that tells which items at pairs of positions are almost the same picture.

    The stored thumbnails of 16 x 16 pixels are read when it is called: 768 bytes an item.

    Args:
        gallery: The gallery.
        snapshot: Its version.
    """

    def compare(first: Positions, second: Positions) -> Bools:
        column = gallery.columns(snapshot.manifest.version, ["signature"])["signature"]
        pixels = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        signatures = pixels.reshape(len(snapshot), -1)
        return are_same_pictures(signatures[first], signatures[second])

    return compare
