"""Features that gates see of an embedding and its neighbors: similarities, nothing of their directions.

A matrix learned on some classes says which directions matter for those classes. Similarities say how sure a
neighborhood is, whatever it shows: what is learned on them holds for other classes, and does not depend on
how a backbone happened to turn its space.

Every function works on numpy arrays and on torch tensors: both serve the same formulas.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vicinal.calibration.arrays import FloatArray

N_GATE_FEATURES = 11
# A neighbor's radii: its similarity to its own 1st, 4th and 8th nearest neighbor.
RADIUS_RANKS = (1, 4, 8)
N_RADII = len(RADIUS_RANKS)
N_LEVEL_FEATURES = N_GATE_FEATURES + 2 + N_RADII

# Differences between similarities are several times smaller than the similarities.
_SPREAD = 3.0
_USUAL_NEIGHBORS = 8.0


def neighborhood_features(xp: Any, rows: Any, initial: Any, context: Any, mask: Any) -> Any:
    """(n, k, 11) `gate_features` of (n, 1, d) embeddings e^t and e^0 and (n, k, d) neighbors or zeros."""
    turned = context.swapaxes(1, 2)
    return gate_features(xp, (rows @ turned)[:, 0], (initial @ turned)[:, 0], context @ turned, mask)


def mean_neighbor(xp: Any, values: Any, mask: Any) -> Any:
    """(n, h) mean over the neighbors of (n, k, h) values that are 0 where there is none."""
    return values.sum(1) / xp.clip(mask.sum(1), 1.0, None)[:, None]


def gate_features(xp: Any, current: Any, initial: Any, gram: Any, mask: Any) -> Any:
    """Features of each neighbor, in any order of the neighbors, for numpy or torch as `xp`.

    From (n, k) similarities of e^t and of e^0 to the neighbors, (n, k, k) among these, and the (n, k) mask
    come (n, k, 11): similarity to e^t and to e^0; mean and largest similarity to the other neighbors, and how
    far the mean lies below; rank by similarity to e^0; mean, spread and largest similarity to e^0, mean of
    the similarities among neighbors, number of neighbors. A row without any neighbor gets finite values.
    """
    pairs = mask[:, :, None] * mask[:, None, :] * _off_diagonal(xp, mask)
    n_others = pairs.sum(2)
    mean_other = (gram * pairs).sum(2) / xp.clip(n_others, 1.0, None)
    largest_other = xp.where(n_others > 0, xp.amax(gram * pairs - 2.0 * (1.0 - pairs), 2), mean_other)
    nearer = (initial[:, None, :] > initial[:, :, None]) * pairs
    count = xp.clip(mask.sum(1), 1.0, None)[:, None]
    mean = (initial * mask).sum(1)[:, None] / count
    spread = (((initial - mean) ** 2 * mask).sum(1)[:, None] / count + 1e-6) ** 0.5
    top = xp.amax(initial * mask - 2.0 * (1.0 - mask), 1)[:, None]
    among = (mean_other * mask).sum(1)[:, None] / count
    wide = xp.ones_like(initial)
    return xp.stack(
        [
            current,
            initial,
            mean_other,
            largest_other,
            current - mean_other,
            nearer.sum(2) / _USUAL_NEIGHBORS,
            mean * wide,
            _SPREAD * spread * wide,
            top * wide,
            among * wide,
            count / _USUAL_NEIGHBORS * wide,
        ],
        -1,
    )


def level_features(xp: Any, gates: Any, turn: Any, mask: Any, radii: Any) -> Any:
    """Features of each neighbor that tell whether a query has a mate.

    (n, k, 16): the `gates`, the cosine of e^0 and e^t (`turn`, (n,)), the largest similarity to e^t, and how
    much the query's similarity to the neighbor exceeds each of its (n, k, 3) radii, its similarities to its
    own 1st, 4th and 8th nearest neighbor: a query that lies further from a neighbor than these would not be
    among its neighbors.
    """
    current = gates[..., 0]
    top = xp.amax(current * mask - 2.0 * (1.0 - mask), 1)[:, None]
    wide = xp.ones_like(current)
    pair = xp.stack([turn[:, None] * wide, top * wide], -1)
    return xp.concatenate([gates, pair, _SPREAD * (current[..., None] - radii)], -1)


def neighborhood_radii(similarities: FloatArray) -> FloatArray:
    """(n, 3) radii of items, from (n, K) similarities to neighbors, descending, -inf where there is none.

    The similarity to the 1st, 4th and 8th neighbor, to the last one where there are fewer, and 0 where there
    is none.
    """
    counts = np.isfinite(similarities).sum(axis=1)
    if not similarities.shape[1]:
        return np.zeros((len(similarities), N_RADII), np.float32)
    places = np.minimum(np.array(RADIUS_RANKS), counts[:, None]) - 1
    found = np.take_along_axis(similarities, np.maximum(places, 0), axis=1)
    return np.where(places >= 0, found, np.float32(0.0))


def _off_diagonal(xp: Any, mask: Any) -> Any:
    """(k, k) float, 0 on the diagonal and 1 elsewhere, where `mask` is."""
    eye = xp.eye(mask.shape[1], dtype=mask.dtype)
    return 1.0 - (eye.to(mask.device) if hasattr(eye, "to") else eye)
