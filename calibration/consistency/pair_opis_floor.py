"""Sampling floor of OPIS on the pairs of a calibration: what equal classes would show on these very pairs.

The model is that of `calibration.opis_floor`: every class has the same sensitivity, pairs share images, and
specificities are dealt out to the classes. There all images of a class form pairs; here the pairs are those
of queries with items, in one direction or in both, some left out by groups or by a sample. Which pairs share
an image is read off them one by one, so that the moments, and what is drawn, are of the same design.

A pair that stands in both directions is one pair whose acceptance is the mean of the two; what distinguishes
its directions is not drawn, which makes the floor a little higher than it is where scores are
asymmetric. Specificities are those of queries; an item's part in the specificity of its class is dealt with
them. Both are exact for distances in leave-one-out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.consistency.class_utility import ClassUtilities
from vicinal.calibration.consistency.equal_classes import image_correlation, mean_product, normal_quantiles
from vicinal.calibration.consistency.opis import epsilon_opis, utility
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Codes, Trials

__all__ = ["PairImages", "PairOpisFloor", "pair_opis_floor"]

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

# Drawn pairs of all repetitions together.
_MOST_DRAWN = 20_000_000
_LEAST_REPETITIONS = 10
# The part of an acceptance's variance that can be ascribed to differences of the classes.
_MOST_BETWEEN = 0.95


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


@dataclass(frozen=True)
class PairOpisFloor:
    """OPIS of simulated worlds of equal classes.

    Attributes:
        opis_draws: (B,) OPIS.
        epsilon_opis_draws: (B,) epsilon-OPIS.
        image_correlation: rho, the share of an image in the normal score of each of its pairs, in [0, 0.5].
    """

    opis_draws: Floats
    epsilon_opis_draws: Floats
    image_correlation: float


@dataclass(frozen=True)
class _Pairs:
    """Unordered positive pairs of the classes that have a utility.

    Attributes:
        first, second: (m,) numbers of the images, from 0 on without gaps.
        rows: (m,) class, as a row of the utilities.
        weights: (m,) 1, or 2 where the pair stands in both directions.
        strict, loose: (m,) first threshold, from the strictest on, that its stricter and its looser
            direction reaches; N for none.
    """

    first: Numbers
    second: Numbers
    rows: Numbers
    weights: Floats
    strict: Numbers
    loose: Numbers

    @property
    def n_images(self) -> int:
        return int(max(self.first.max(), self.second.max())) + 1


def pair_opis_floor(
    found: ClassUtilities,
    trials: Trials,
    images: PairImages,
    *,
    epsilon: float = 0.1,
    n_repetitions: int = 30,
    seed: int = 0,
) -> PairOpisFloor:
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
    if n_repetitions < 2:
        raise CalibrationError(f"n_repetitions is {n_repetitions}, a spread needs at least 2")
    if trials.low_pairs is not None and found.thresholds[-1] < trials.low_pairs.ceiling:
        raise CalibrationError("the calibration range reaches below the pairs that were listed one by one")
    pairs = _unordered_pairs(found, trials, images)
    sensitivity = found.sensitivity.mean(axis=0)
    cuts = normal_quantiles(sensitivity)
    covariance = _shared_covariance(pairs, sensitivity, len(found.names))
    correlation = image_correlation(covariance, cuts)
    specificities = _query_specificities(found, trials, images)
    sizes = np.bincount(images.query_labels, minlength=int(found.codes.max()) + 1)[found.codes]
    rng = np.random.default_rng(seed)
    affordable = max(_LEAST_REPETITIONS, _MOST_DRAWN // len(pairs.first))
    draws = np.empty((min(n_repetitions, affordable), 2))
    for draw in draws:
        drawn = _draw_sensitivities(rng, pairs, cuts, correlation)
        dealt = _deal(rng, specificities, sizes)
        draw[:] = utility(dealt, drawn).var(axis=0).mean(), epsilon_opis(dealt, drawn, epsilon)
    return PairOpisFloor(draws[:, 0], draws[:, 1], correlation)


def _unordered_pairs(found: ClassUtilities, trials: Trials, images: PairImages) -> _Pairs:
    if trials.labels is None:
        raise CalibrationError("a floor of OPIS needs the labels of the trials")
    row_of = np.full(len(trials.labels.names), -1)
    row_of[found.codes] = np.arange(len(found.codes))
    rows = row_of[trials.labels.mates]
    kept = rows >= 0
    _, dense = np.unique(images.mates[kept], return_inverse=True)
    ends = np.sort(dense.reshape(-1, 2), axis=1)
    n_thresholds = len(found.thresholds)
    reached = np.searchsorted(found.thresholds[::-1], trials.mate_scores[kept], side="right")
    slots = n_thresholds - reached
    unique, inverse, times = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.ravel()
    strict, loose = np.zeros(len(unique), np.int64), np.full(len(unique), n_thresholds)
    np.maximum.at(strict, inverse, slots)
    np.minimum.at(loose, inverse, slots)
    of_class = np.empty(len(unique), np.int64)
    of_class[inverse] = rows[kept]
    return _Pairs(unique[:, 0], unique[:, 1], of_class, times.astype(np.float64), strict, loose)


def _shared_covariance(pairs: _Pairs, sensitivity: Floats, n_classes: int) -> Floats:
    """(N,) covariance zeta_1 of the acceptance of two pairs that share an image, among equal classes.

    Means over classes are weighted by their numbers of images. Sums over pairs of pairs come from sums over
    the pairs of each image: the square of those counts every two that share it.
    """
    n = len(sensitivity)
    variance = sensitivity * (1.0 - sensitivity)
    images = np.concatenate([pairs.first, pairs.second])
    class_of = np.empty(pairs.n_images, np.int64)
    class_of[images] = np.tile(pairs.rows, 2)
    n_pairs = np.bincount(images, minlength=pairs.n_images)
    by_image = _accepted(images, np.tile(pairs.strict, 2), np.tile(pairs.loose, 2), (pairs.n_images, n))
    squares = _accepted(
        images, np.tile(pairs.strict, 2), np.tile(pairs.loose, 2), (pairs.n_images, n), squared=True
    )
    sharing = _class_sums(by_image**2 - squares, class_of, n_classes)
    n_sharing = _class_sums((n_pairs * (n_pairs - 1.0))[:, None], class_of, n_classes)
    total = _accepted(pairs.rows, pairs.strict, pairs.loose, (n_classes, n))
    own = _accepted(pairs.rows, pairs.strict, pairs.loose, (n_classes, n), squared=True)
    m = np.bincount(pairs.rows, minlength=n_classes)[:, None].astype(np.float64)
    n_apart = m * m - m - n_sharing
    both = (n_sharing > 0.0)[:, 0] & (n_apart > 0.0)[:, 0]
    if not both.any():
        # No two pairs apart: all that pairs share is put down to the images, an upper bound.
        some = n_sharing[:, 0] > 0.0
        if not some.any():
            return np.zeros(n)
        return np.asarray((sharing[some] / n_sharing[some]).mean(axis=0) - sensitivity**2)
    with_image = sharing[both] / n_sharing[both]
    apart = ((total**2 - own - sharing) / np.where(n_apart > 0.0, n_apart, 1.0))[both]
    sizes = np.bincount(class_of, minlength=n_classes)[both, None]
    weights = sizes / sizes.sum()
    shared = (weights * (with_image - apart)).sum(axis=0)
    between = (weights * apart).sum(axis=0) - mean_product((total / m)[both], weights)
    within = variance - np.clip(between, 0.0, _MOST_BETWEEN * variance)
    return np.asarray(shared * np.divide(variance, within, out=np.ones_like(within), where=within > 0.0))


def _accepted(
    rows: Numbers, strict: Numbers, loose: Numbers, shape: tuple[int, int], *, squared: bool = False
) -> Floats:
    """(rows, N) sums of the acceptance of pairs, or of its square; 1/2 where one direction is accepted."""
    n_rows, n = shape
    first, second = (0.25, 0.75) if squared else (0.5, 0.5)
    table = np.zeros((n_rows, n + 1))
    np.add.at(table, (rows, loose), first)
    np.add.at(table, (rows, strict), second)
    return table[:, :n].cumsum(axis=1)


def _class_sums(table: Floats, class_of: Numbers, n_classes: int) -> Floats:
    sums = np.zeros((n_classes, table.shape[1]))
    np.add.at(sums, class_of, table)
    return sums


def _query_specificities(found: ClassUtilities, trials: Trials, images: PairImages) -> Floats:
    """(Q, N) share of each query's negative pairs that are rejected, for queries with such pairs."""
    n = len(found.thresholds)
    reaching = trials.non_mate_scores >= found.thresholds[-1]
    reached = np.searchsorted(found.thresholds[::-1], trials.non_mate_scores[reaching], side="right")
    cells = images.non_mate_queries[reaching].astype(np.int64) * (n + 1) + (n - reached)
    counts = np.bincount(cells, minlength=len(images.n_negatives) * (n + 1)).reshape(-1, n + 1)
    some = images.n_negatives > 0
    return np.asarray(1.0 - counts[some, :n].cumsum(axis=1) / images.n_negatives[some, None])


def _draw_sensitivities(rng: np.random.Generator, pairs: _Pairs, cuts: Floats, correlation: float) -> Floats:
    """(T, N) sensitivities of classes that are all alike."""
    of_images = np.sqrt(correlation) * rng.standard_normal(pairs.n_images)
    drawn = np.sqrt(1.0 - 2.0 * correlation) * rng.standard_normal(len(pairs.first))
    drawn += of_images[pairs.first] + of_images[pairs.second]
    width = len(cuts) + 1
    cells = pairs.rows * width + np.searchsorted(cuts, drawn)
    n_classes = int(pairs.rows.max()) + 1
    counts = np.bincount(cells, weights=pairs.weights, minlength=n_classes * width).reshape(n_classes, width)
    return np.asarray(counts[:, :-1].cumsum(axis=1) / counts.sum(axis=1, keepdims=True))


def _deal(rng: np.random.Generator, specificities: Floats, sizes: Numbers) -> Floats:
    """(T, N) mean specificity of each class, whose queries are drawn from all without replacement."""
    order = rng.permutation(len(specificities))[: sizes.sum()]
    starts = np.minimum(np.concatenate([[0], sizes.cumsum()[:-1]]), len(order) - 1)
    sums = np.add.reduceat(specificities[order], starts, axis=0)
    return np.asarray(sums / np.diff(np.append(starts, len(order)))[:, None])
