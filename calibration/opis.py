"""OPIS: how differently the classes fare under one threshold.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024).
For class i at distance threshold t, over the pairs with a member of class i,

    psi_i(t) = share of positive pairs with dist <= t        phi_i(t) = share of negative pairs with dist > t
    U_i(t)   = 2 phi psi / (phi + psi), 0 where both are 0

    OPIS     = 1 / (T N) sum_j sum_i (U_i(t_j) - mean_i U_i(t_j))^2        (eq. 2, normalized)

over N thresholds t_j evenly spaced in the calibration range, the distances at which the given share of
ALL negative pairs is accepted. epsilon-OPIS (eq. 3) is the mean squared difference between the utility of
the best epsilon share of classes and that of the worst, ranked anew at each threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration.errors import CalibrationError

__all__ = ["Opis", "opis", "utility"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_CHUNK = 512
_BINS = 65_536
_LARGEST_DISTANCE = 2.0


@dataclass(frozen=True)
class Opis:
    """Threshold inconsistency of a set of embeddings.

    Attributes:
        opis: Mean over thresholds of the variance of the utility across classes, in [0, 0.25].
        epsilon_opis: Mean squared gap between the best and the worst epsilon share of classes, in [0, 1].
        threshold_range: Smallest and largest distance of the calibration range.
        thresholds: (N,) distances in [0, 2].
        utilities: (T, N) utility of each class at each threshold, in [0, 1].
        labels: (T,) labels of the rows of `utilities`, sorted.
        left_out: Labels with a single embedding, sorted: they have no positive pair. Their embeddings
            still count in the negative pairs of the others.
    """

    opis: float
    epsilon_opis: float
    threshold_range: tuple[float, float]
    thresholds: Floats
    utilities: Floats
    labels: npt.NDArray[np.generic]
    left_out: npt.NDArray[np.generic]


def opis(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    far_range: tuple[float, float] = (0.01, 0.1),
    n_thresholds: int = 100,
    epsilon: float = 0.1,
) -> Opis:
    """Measure OPIS and epsilon-OPIS over all pairs of a set, block by block.

    Args:
        embeddings: (n, d), normalized or not.
        labels: (n,) class labels.
        far_range: Shares of negative pairs accepted at the ends of the calibration range.
        n_thresholds: Number N of thresholds.
        epsilon: Share of the classes in the best and in the worst group; at least one class each.

    Raises:
        CalibrationError: No negative pairs, no class with two embeddings, or a parameter is out of range.
    """
    unit = _unit_rows(embeddings)
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    sizes = np.bincount(classes)
    _check(len(unit), len(classes), sizes, far_range, epsilon)
    t_min, t_max = _negative_quantiles(unit, classes, far_range)
    thresholds = t_min + (t_max - t_min) * np.arange(1, n_thresholds + 1) / n_thresholds
    accepted_positive, accepted_negative = _accepted_pairs(unit, classes, len(names), thresholds)
    kept = sizes >= 2
    n_positive = (sizes * (sizes - 1) // 2)[kept, None]
    n_negative = (sizes * (len(unit) - sizes))[kept, None]
    sensitivity = accepted_positive[kept] / n_positive
    specificity = 1.0 - accepted_negative[kept] / n_negative
    utilities = utility(specificity, sensitivity)
    return Opis(
        opis=float(utilities.var(axis=0).mean()),
        epsilon_opis=_epsilon_opis(specificity, sensitivity, epsilon),
        threshold_range=(t_min, t_max),
        thresholds=thresholds,
        utilities=utilities,
        labels=names[kept],
        left_out=names[~kept],
    )


def utility(specificity: Floats, sensitivity: Floats) -> Floats:
    """Harmonic mean of specificity and sensitivity (TCM, eq. 1 with c = 1); 0 where both are 0."""
    total = specificity + sensitivity
    return np.divide(2.0 * specificity * sensitivity, total, out=np.zeros_like(total), where=total > 0.0)


def _epsilon_opis(specificity: Floats, sensitivity: Floats, epsilon: float) -> float:
    n_group = max(1, int(epsilon * len(specificity)))
    order = np.argsort(utility(specificity, sensitivity), axis=0, kind="stable")
    worst, best = (
        utility(
            np.take_along_axis(specificity, rows, axis=0).mean(axis=0),
            np.take_along_axis(sensitivity, rows, axis=0).mean(axis=0),
        )
        for rows in (order[:n_group], order[-n_group:])
    )
    return float(((best - worst) ** 2).mean())


def _negative_quantiles(unit: Floats, classes: Counts, shares: tuple[float, float]) -> tuple[float, float]:
    """Linearly interpolated quantiles of all negative distances, exact, without keeping them.

    A histogram finds the bins in which the wanted ranks lie; a second pass keeps the distances of these.
    """
    counts = np.zeros(_BINS, dtype=np.int64)
    for distances in _negative_distances(unit, classes):
        counts += np.bincount(_bins(distances), minlength=_BINS)
    before = np.concatenate([[0], counts.cumsum()])
    positions = [share * (before[-1] - 1) for share in shares]
    ranks = sorted({rank for position in positions for rank in (int(position), int(np.ceil(position)))})
    wanted = np.unique(np.searchsorted(before, ranks, side="right") - 1)
    kept: dict[int, list[Floats]] = {int(one): [] for one in wanted}
    for distances in _negative_distances(unit, classes):
        bins = _bins(distances)
        for one in kept:
            kept[one].append(distances[bins == one])
    ordered = {one: np.sort(np.concatenate(parts)) for one, parts in kept.items()}

    def at(rank: int) -> float:
        one = int(np.searchsorted(before, rank, side="right") - 1)
        return float(ordered[one][rank - before[one]])

    low, high = (_interpolated(position, at) for position in positions)
    return low, high


def _interpolated(position: float, at: Callable[[int], float]) -> float:
    low = int(position)
    below, above = at(low), at(int(np.ceil(position)))
    return below + (above - below) * (position - low)


def _bins(distances: Floats) -> Counts:
    return np.minimum((distances * (_BINS / _LARGEST_DISTANCE)).astype(np.int64), _BINS - 1)


def _accepted_pairs(
    unit: Floats, classes: Counts, n_classes: int, thresholds: Floats
) -> tuple[Counts, Counts]:
    """(classes, thresholds) number of positive and of negative pairs with dist <= t, per class."""
    width = len(thresholds) + 1
    positive = np.zeros(n_classes * width, dtype=np.int64)
    negative = np.zeros(n_classes * width, dtype=np.int64)
    for rows, columns, distances in _pairs(unit):
        # Slot j holds the distances in (t_{j-1}, t_j]; the cumulative sum counts those up to t_j.
        slots = np.searchsorted(thresholds, distances, side="left")
        same = classes[rows] == classes[columns]
        positive += np.bincount(classes[rows][same] * width + slots[same], minlength=len(positive))
        # A negative pair belongs to both of its classes.
        for members in (rows, columns):
            cells = classes[members][~same] * width + slots[~same]
            negative += np.bincount(cells, minlength=len(negative))
    counted = (table.reshape(n_classes, width)[:, :-1].cumsum(axis=1) for table in (positive, negative))
    accepted_positive, accepted_negative = counted
    return accepted_positive, accepted_negative


def _negative_distances(unit: Floats, classes: Counts) -> Iterator[Floats]:
    for rows, columns, distances in _pairs(unit):
        yield distances[classes[rows] != classes[columns]]


def _pairs(unit: Floats) -> Iterator[tuple[Counts, Counts, Floats]]:
    """Each unordered pair once, a block of rows at a time: row, column, L2 distance."""
    n = len(unit)
    for start in range(0, n, _CHUNK):
        block = unit[start : start + _CHUNK] @ unit[start:].T
        rows, columns = np.triu_indices(len(block), k=1, m=block.shape[1])
        squared = np.clip(2.0 - 2.0 * block[rows, columns], 0.0, _LARGEST_DISTANCE**2)
        yield rows + start, columns + start, np.sqrt(squared)


def _unit_rows(embeddings: npt.ArrayLike) -> Floats:
    rows = np.asarray(embeddings, dtype=np.float64)
    if rows.ndim != 2:
        raise CalibrationError(f"embeddings have shape {rows.shape}, expected (n, d)")
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    if not (np.isfinite(norms) & (norms > 0.0)).all():
        raise CalibrationError("an embedding is zero or holds values that are not finite")
    return np.asarray(rows / norms[:, None])


def _check(n: int, n_labels: int, sizes: Counts, far_range: tuple[float, float], epsilon: float) -> None:
    if n != n_labels:
        raise CalibrationError(f"{n} embeddings, but {n_labels} labels")
    if not 0.0 <= far_range[0] < far_range[1] <= 1.0:
        raise CalibrationError(f"far_range is {far_range}, expected two rising shares between 0 and 1")
    if not 0.0 < epsilon <= 0.5:
        raise CalibrationError(f"epsilon is {epsilon}, expected a share up to 0.5")
    if len(sizes) < 2:
        raise CalibrationError("all embeddings carry one label: there are no negative pairs")
    if (sizes < 2).all():
        raise CalibrationError("every label has one embedding: there are no positive pairs")
