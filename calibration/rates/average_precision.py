"""Average precision over the first R ranks of a search, R the mates that a query has."""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import Floats, Ints, Mask


def average_precisions(is_mate: Mask, n_mates: Ints) -> Floats:
    """(Q,) average precision over the first R ranks (Musgrave et al., ECCV 2020, eq. 2), of (Q, w) items,
    best first; more than w mates count as w.
    """
    width = is_mate.shape[1]
    cut = np.minimum(n_mates, width)
    ranks = np.arange(1, width + 1)
    counted = is_mate & (ranks <= cut[:, None])
    return np.asarray((is_mate.cumsum(axis=1) / ranks * counted).sum(axis=1) / np.maximum(cut, 1))
