"""OPIS: how differently the classes fare under one threshold.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024).
For class i at distance threshold t, over the pairs with a member of class i,

    psi_i(t) = share of positive pairs with dist <= t        phi_i(t) = share of negative pairs with dist > t
    U_i(t)   = 2 phi psi / (phi + psi), 0 where both are 0

    OPIS     = 1 / (T N) sum_j sum_i (U_i(t_j) - mean_i U_i(t_j))^2        (eq. 2, normalized)

over N thresholds t_j evenly spaced in the calibration range, the distances at which the given share of
ALL negative pairs is accepted. epsilon-OPIS (eq. 3) is the mean squared difference between the utility of
the best epsilon share of classes and that of the worst, ranked anew at each threshold.

Two figures can be compared only when they were measured on identical pairs: the same images with the same
labels. OPIS also rises when classes have fewer images, because the utility of each is then known less
well; `calibration.opis_floor` says how much of a figure is that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vicinal.calibration.consistency.image_rates import ImageRates, measure_images
from vicinal.calibration.errors import CalibrationError

__all__ = ["Opis", "epsilon_opis", "opis", "opis_of", "utility"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Opis:
    """Threshold inconsistency of classes.

    Attributes:
        epsilon_opis: Mean squared gap between the best and the worst epsilon share of classes, in [0, 1].
        threshold_range: Ends of the calibration range: smallest and largest distance, or score.
        thresholds: (N,) from the strictest on: rising distances, in [0, 2] of embeddings, or falling scores.
        specificity: (T, N) share of rejected negative pairs of each class.
        sensitivity: (T, N) share of accepted positive pairs of each class.
        labels: (T,) labels of the rows, sorted.
        left_out: Labels without a positive pair, sorted. Their images still count in the negative pairs of
            the others.
    """

    epsilon_opis: float
    threshold_range: tuple[float, float]
    thresholds: Floats
    specificity: Floats
    sensitivity: Floats
    labels: npt.NDArray[np.generic]
    left_out: npt.NDArray[np.generic]

    @cached_property
    def utilities(self) -> Floats:
        """(T, N) utility of each class at each threshold, in [0, 1] (eq. 1)."""
        return utility(self.specificity, self.sensitivity)

    @property
    def opis(self) -> float:
        """Mean over thresholds of the variance of the utility across classes, in [0, 0.25] (eq. 2)."""
        return float(self.utilities.var(axis=0).mean())


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
    return opis_of(measure_images(embeddings, labels, far_range, n_thresholds), epsilon)


def opis_of(rates: ImageRates, epsilon: float) -> Opis:
    """OPIS from the accepted pairs of each image.

    Raises:
        CalibrationError: `epsilon` is out of range.
    """
    return Opis(
        epsilon_opis=epsilon_opis(rates.specificity, rates.sensitivity, epsilon),
        threshold_range=rates.threshold_range,
        thresholds=rates.thresholds,
        specificity=rates.specificity,
        sensitivity=rates.sensitivity,
        labels=rates.names[rates.kept],
        left_out=rates.names[~rates.kept],
    )


def utility(specificity: Floats, sensitivity: Floats) -> Floats:
    """Harmonic mean of specificity and sensitivity (TCM, eq. 1 with c = 1); 0 where both are 0."""
    total = specificity + sensitivity
    return np.divide(2.0 * specificity * sensitivity, total, out=np.zeros_like(total), where=total > 0.0)


def epsilon_opis(specificity: Floats, sensitivity: Floats, epsilon: float) -> float:
    """Mean squared gap between the utility of the best and of the worst classes (TCM, eq. 3).

    Args:
        specificity: (T, N) by class and threshold, in [0, 1].
        sensitivity: (T, N) in [0, 1].
        epsilon: Share of the classes in each group; at least one class.

    Raises:
        CalibrationError: `epsilon` is out of range.
    """
    if not 0.0 < epsilon <= 0.5:
        raise CalibrationError(f"epsilon is {epsilon}, expected a share up to 0.5")
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
