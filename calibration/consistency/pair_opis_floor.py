"""Sampling floor of OPIS on the pairs of a calibration: what equal classes would show on these very pairs.

The model is that of `calibration.consistency.opis_floor`, where all images of a class form pairs. Here the
pairs are those of queries with items, in one direction or in both, some left out by groups or by a sample.

A pair that stands in both directions is one pair whose acceptance is the mean of the two; what distinguishes
its directions is not drawn, which makes the floor a little higher than it is where scores are
asymmetric. Specificities are those of queries; an item's part in the specificity of its class is dealt with
them. Both are exact for distances in leave-one-out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.consistency.opis import ClassUtilities
from vicinal.calibration.consistency.opis_floor import OpisFloor, PositivePairs, simulate_floor
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Codes, Trials

__all__ = ["PairImages", "pair_opis_floor"]

Numbers = npt.NDArray[np.int64]

# Drawn pairs of all repetitions together.
_MOST_DRAWN = 20_000_000
_LEAST_REPETITIONS = 10


@dataclass(frozen=True)
class PairImages:
    """The images behind the pairs of some trials.

    Attributes:
        mates: (M, 2) numbers of the two images of each positive pair.
        non_mate_queries: (P,) row of the query of each listed negative pair.
        query_labels: (Q,) label of each query.
        n_negatives: (Q,) all negative pairs of each query.
    """

    mates: Numbers
    non_mate_queries: npt.NDArray[np.unsignedinteger]
    query_labels: Codes
    n_negatives: Numbers


def pair_opis_floor(
    found: ClassUtilities,
    trials: Trials,
    images: PairImages,
    *,
    epsilon: float = 0.1,
    n_repetitions: int = 30,
    seed: int = 0,
) -> OpisFloor:
    """Simulate OPIS and epsilon-OPIS for equal classes on the pairs of a calibration.

    Args:
        found: Utilities of the classes.
        trials: The trials that they are of.
        images: The images behind these.
        epsilon: Share of the classes in the best and in the worst group; at least one class each.
        n_repetitions: Number B of simulated worlds, at least 2; fewer with millions of pairs.
        seed: Seed of the simulation.

    Raises:
        CalibrationError: The calibration range lies among pairs that are not listed, or a parameter is out of
            range.
    """
    if trials.low_pairs is not None and found.thresholds[-1] < trials.low_pairs.ceiling:
        raise CalibrationError("the calibration range reaches below the pairs that were listed one by one")
    pairs = _unordered_pairs(found, trials, images)
    return simulate_floor(
        found,
        pairs,
        _query_specificities(found, trials, images),
        np.bincount(images.query_labels, minlength=int(found.codes.max()) + 1)[found.codes],
        epsilon=epsilon,
        n_repetitions=min(n_repetitions, max(_LEAST_REPETITIONS, _MOST_DRAWN // len(pairs.rows))),
        seed=seed,
    )


def _unordered_pairs(found: ClassUtilities, trials: Trials, images: PairImages) -> PositivePairs:
    if trials.labels is None:
        raise CalibrationError("a floor of OPIS needs the labels of the trials")
    row_of = np.full(len(trials.labels.names), -1)
    row_of[found.codes] = np.arange(len(found.codes))
    rows = row_of[trials.labels.mates]
    kept = rows >= 0
    _, dense = np.unique(images.mates[kept], return_inverse=True)
    ends = np.sort(dense.reshape(-1, 2), axis=1)
    slots = _first_reached(found, trials.mate_scores[kept])
    unique, inverse, times = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.ravel()
    strict, loose = np.zeros(len(unique), np.int64), np.full(len(unique), len(found.thresholds))
    np.maximum.at(strict, inverse, slots)
    np.minimum.at(loose, inverse, slots)
    of_class = np.empty(len(unique), np.int64)
    of_class[inverse] = rows[kept]
    weights, shrinkage = times.astype(np.float64), np.ones(len(found.codes))
    return PositivePairs(unique, of_class, strict, loose, weights, shrinkage)


def _query_specificities(
    found: ClassUtilities, trials: Trials, images: PairImages
) -> npt.NDArray[np.float64]:
    """(Q, N) share of each query's negative pairs that are rejected, for queries with such pairs."""
    n = len(found.thresholds)
    reaching = trials.non_mate_scores >= found.thresholds[-1]
    slots = _first_reached(found, trials.non_mate_scores[reaching])
    cells = images.non_mate_queries[reaching].astype(np.int64) * (n + 1) + slots
    counts = np.bincount(cells, minlength=len(images.n_negatives) * (n + 1)).reshape(-1, n + 1)
    some = images.n_negatives > 0
    return np.asarray(1.0 - counts[some, :n].cumsum(axis=1) / images.n_negatives[some, None])


def _first_reached(found: ClassUtilities, scores: npt.NDArray[np.float64]) -> Numbers:
    """(n,) first threshold, from the strictest on, that each score reaches; N for none."""
    reached = np.searchsorted(found.thresholds[::-1], scores, side="right")
    return np.asarray(len(found.thresholds) - reached)
