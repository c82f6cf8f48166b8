"""Accepted pairs of every image over a range of thresholds, block by block, each pair counted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, Floats, Indices, Ints, Mask
from vicinal.calibration.errors import CalibrationError

# Pairs a block.
_BLOCK = 2**21
_BINS = 65_536
_LARGEST_DISTANCE = 2.0


@dataclass(frozen=True)
class ImageRates:
    """Numbers of partners that images and classes accept at each threshold."""

    unit: Floats  # (n, d) L2-normalized embeddings
    names: AnyArray  # (C,) labels, sorted
    classes: Ints  # (n,) index of each image's label
    sizes: Ints  # (C,) images of each label
    thresholds: Floats  # (N,) distances in [0, 2], rising
    threshold_range: tuple[float, float]  # Smallest and largest distance of the calibration range
    positive: Ints  # (C, N) pairs of images of each label with dist <= t
    negative: Ints  # (n, N) images of other labels with dist <= t

    @property
    def kept(self) -> Mask:
        """(C,) whether a label has a positive pair."""
        return self.sizes >= 2

    @property
    def sensitivity(self) -> Floats:
        """(T, N) share of accepted positive pairs of each kept label."""
        sizes = self.sizes[self.kept, None]
        return self.positive[self.kept] / (sizes * (sizes - 1) // 2)

    @property
    def specificity(self) -> Floats:
        """(T, N) share of rejected negative pairs of each kept label: the mean of its images' shares."""
        sizes = self.sizes[self.kept, None]
        return 1.0 - self._accepted_negatives / (sizes * (len(self.classes) - sizes))

    @property
    def _accepted_negatives(self) -> Ints:
        """(T, N) accepted negative pairs with a member of each kept label."""
        starts = np.concatenate([[0], self.sizes.cumsum()[:-1]])
        order = np.argsort(self.classes, kind="stable")
        return np.asarray(np.add.reduceat(self.negative[order], starts, axis=0)[self.kept])


def measure_images(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    far_range: tuple[float, float],
    n_thresholds: int,
) -> ImageRates:
    """Count the accepted pairs of each image at evenly spaced thresholds of the calibration range, the first
    one step above the smallest distance; see `consistency.opis.opis`.
    """
    unit = _unit_rows(embeddings)
    names, classes, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    _check(len(unit), len(classes), sizes, far_range)
    if not is_number(n_thresholds) or n_thresholds < 1 or n_thresholds % 1:
        raise CalibrationError(f"n_thresholds is {n_thresholds!r}, expected at least 1, and whole")
    t_min, t_max = _quantiles(unit, classes, far_range)
    thresholds = t_min + (t_max - t_min) * np.arange(1, n_thresholds + 1) / n_thresholds
    positive, negative = _accepted_pairs(unit, classes, thresholds)
    return ImageRates(unit, names, classes, sizes, thresholds, (t_min, t_max), positive, negative)


def _accepted_pairs(unit: Floats, classes: Ints, thresholds: Floats) -> tuple[Ints, Ints]:
    """(C, N) positive pairs of each label, and (n, N) negative ones of each image, with dist <= t."""
    # Slot j holds the distances in (t_{j-1}, t_j]; the cumulative sum counts those up to t_j.
    positive, negative = (
        np.zeros((n, len(thresholds)), dtype=np.int64) for n in (int(classes.max()) + 1, len(unit))
    )
    for start, distances in _distance_blocks(unit):
        rows, columns = np.nonzero(distances <= thresholds[-1])
        slots = np.searchsorted(thresholds, distances[rows, columns], side="left")
        rows, columns = rows + start, columns + start
        same = classes[rows] == classes[columns]
        np.add.at(positive, (classes[rows[same]], slots[same]), 1)
        for members in (rows, columns):
            np.add.at(negative, (members[~same], slots[~same]), 1)
    return positive.cumsum(axis=1), negative.cumsum(axis=1)


def _quantiles(unit: Floats, classes: Ints, shares: tuple[float, float]) -> tuple[float, float]:
    """Linearly interpolated quantiles of all negative distances, exact, without keeping them.

    A histogram finds the bins in which the wanted ranks lie; a second pass keeps the distances of these.
    """
    counts = np.zeros(_BINS, dtype=np.int64)
    for distances in _distances(unit, classes):
        counts += np.bincount(_bins(distances), minlength=_BINS)
    before = np.concatenate([[0], counts.cumsum()])
    positions = [share * (before[-1] - 1) for share in shares]
    ranks = sorted({rank for position in positions for rank in (int(position), int(np.ceil(position)))})
    wanted = np.unique(np.searchsorted(before, ranks, side="right") - 1)
    kept: dict[int, list[Floats]] = {int(one): [] for one in wanted}
    for distances in _distances(unit, classes):
        bins = _bins(distances)
        for one in kept:
            kept[one].append(distances[bins == one])
    ordered = {one: np.sort(np.concatenate(parts)) for one, parts in kept.items()}

    def at(rank: int) -> float:
        one = int(np.searchsorted(before, rank, side="right") - 1)
        return float(ordered[one][rank - before[one]])

    def interpolated(position: float) -> float:
        below, above = at(int(position)), at(int(np.ceil(position)))
        return below + (above - below) * (position - int(position))

    return interpolated(positions[0]), interpolated(positions[1])


def _bins(distances: Floats) -> Indices:
    return np.minimum((distances * (_BINS / _LARGEST_DISTANCE)).astype(np.intp), _BINS - 1)


def _distances(unit: Floats, classes: Ints) -> Iterator[Floats]:
    for start, distances in _distance_blocks(unit):
        same = classes[start : start + len(distances), None] == classes[None, start:]
        yield distances[~same & (distances < np.inf)]


def _distance_blocks(unit: Floats) -> Iterator[tuple[int, Floats]]:
    """First row, and L2 distances of some rows to all from that row on; infinite for pairs seen before.

    Every pass over the same embeddings sees the same bits, so that a pair that fixes a threshold also
    passes it.
    """
    n = len(unit)
    start = 0
    while start < n:
        stop = min(n, start + max(1, _BLOCK // (n - start)))
        block = unit[start:stop] @ unit[start:].T
        distances = np.sqrt(np.clip(2.0 - 2.0 * block, 0.0, _LARGEST_DISTANCE**2))
        distances[np.tri(stop - start, n - start, dtype=bool)] = np.inf
        yield start, distances
        start = stop


def _unit_rows(embeddings: npt.ArrayLike) -> Floats:
    rows = np.asarray(embeddings, dtype=np.float64)
    if rows.ndim != 2:
        raise CalibrationError(f"embeddings have shape {rows.shape}, expected (n, d)")
    largest = np.abs(rows).max(axis=1, initial=0.0)
    if not (np.isfinite(largest) & (largest > 0.0)).all():
        raise CalibrationError("an embedding is zero or holds values that are not finite")
    # A float does not hold the squares of all numbers that it holds.
    is_usual = (largest > 1e-100) & (largest < 1e100)
    rows = rows if is_usual.all() else rows / np.where(is_usual, 1.0, largest)[:, None]
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return np.asarray(rows / norms[:, None])


def is_number(value: object) -> bool:
    """Test for a real number, of Python or numpy, whatever the annotations promise."""
    return isinstance(value, Real)


def _check(n: int, n_labels: int, sizes: Ints, far_range: tuple[float, float]) -> None:
    if n != n_labels:
        raise CalibrationError(f"{n} embeddings, but {n_labels} labels")
    is_range = np.shape(far_range) == (2,) and all(map(is_number, far_range))
    if not is_range or not 0.0 <= far_range[0] < far_range[1] <= 1.0:
        raise CalibrationError(f"far_range is {far_range!r}, expected two rising shares between 0 and 1")
    if len(sizes) < 2:
        raise CalibrationError("all embeddings carry one label: there are no negative pairs")
    if (sizes < 2).all():
        raise CalibrationError("every label has one embedding: there are no positive pairs")
