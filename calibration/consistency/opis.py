"""OPIS: how differently the classes fare under one threshold.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024).
For class i at distance threshold t, over the pairs with a member of class i,

    psi_i(t) = share of positive pairs with dist <= t        phi_i(t) = share of negative pairs with dist > t
    U_i(t)   = 2 phi psi / (phi + psi), 0 where both are 0 (the paper's c = 1)

    OPIS     = 1 / (T N) sum_j sum_i (U_i(t_j) - mean_i U_i(t_j))^2        (eq. 2, normalized)

over N thresholds t_j evenly spaced in the calibration range, the distances at which the given share of
ALL negative pairs is accepted. epsilon-OPIS (eq. 3) is the mean squared difference between the utility of
the best epsilon share of classes, rounded up, and that of the worst, ranked anew at each threshold.

Two figures can be compared only when they were measured on identical pairs: the same images with the same
labels. OPIS also rises when classes have fewer images, because the utility of each is then known less
well; `calibration.opis_floor` says how much of a figure is that.

`class_utilities` measures the same on the pairs of a calibration, in any space in which higher is more alike:
final scores s, whose distance is 1 - s, or L2 distances d, scored as 1 - d / 2. Thresholds are evenly spaced,
and so are their distances: the one is a straight line in the other. The first lies one step inside of the
strict end of the range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, Codes, Floats, Ints
from vicinal.calibration.consistency.image_rates import ImageRates, is_number, measure_images
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import TrialLabels, Trials

# Trials that are counted at a time.
_AT_ONCE = 2**18


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
    labels: AnyArray
    left_out: AnyArray

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
        epsilon: Share of the classes in the best and in the worst group, in (0, 1], rounded up: of 19 classes
            10 % are two. Above 0.5 the groups overlap.

    Raises:
        CalibrationError: No negative pairs, no class with two embeddings, or a parameter is out of range.
    """
    if not is_number(epsilon):
        raise CalibrationError(f"epsilon is {epsilon!r}, expected a share up to 1")
    return opis_of(measure_images(embeddings, labels, far_range, n_thresholds), epsilon)


def opis_of(rates: ImageRates, epsilon: float) -> Opis:
    """OPIS from the accepted pairs of each image."""
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
    """Harmonic mean of specificity and sensitivity (TCM, eq. 1); 0 of two zeros."""
    total = specificity + sensitivity
    product = 2.0 * specificity * sensitivity
    return np.divide(product, total, out=np.zeros_like(total), where=total > 0.0)


def n_of_share(share: float, n: int) -> int:
    """A share in (0, 1] of n, rounded up: at least one, and exact, whatever floats make of the product."""
    # The simplest fraction beside the float is what was meant, such as 1/10.
    return max(1, math.ceil(Fraction(float(share)).limit_denominator(10**9) * n))


def epsilon_opis(specificity: Floats, sensitivity: Floats, epsilon: float) -> float:
    """Mean squared gap between the utility of the best and of the worst classes (TCM, eq. 3), of (T, N)
    shares by class and threshold; each group has a share epsilon of the classes, rounded up. Groups of more
    than half of them overlap.
    """
    if not 0.0 < epsilon <= 1.0:
        raise CalibrationError(f"epsilon is {epsilon!r}, expected a share up to 1")
    n_group = n_of_share(epsilon, len(specificity))
    order = np.argsort(utility(specificity, sensitivity), axis=0, kind="stable")
    worst, best = (
        utility(
            np.take_along_axis(specificity, rows, axis=0).mean(axis=0),
            np.take_along_axis(sensitivity, rows, axis=0).mean(axis=0),
        )
        for rows in (order[:n_group], order[-n_group:])
    )
    return float(((best - worst) ** 2).mean())


class NoUtilityError(CalibrationError):
    """No label has both positive and negative pairs."""


@dataclass(frozen=True)
class ClassUtilities(Opis):
    """OPIS over falling scores, with what each class fares at them."""

    codes: Ints  # (T,) number of each row's label in the trials

    def worst(self, n: int) -> Ints:
        """Rows of the n classes with the lowest mean utility over the range, the worst first."""
        return np.asarray(np.argsort(self.utilities.mean(axis=1), kind="stable")[:n], dtype=np.int64)

    def worst_mean(self, share: float) -> Floats:
        """(N,) mean utility of the worst share of the classes, rounded up, ranked at each threshold."""
        n_worst = n_of_share(share, len(self.utilities))
        return np.sort(self.utilities, axis=0)[:n_worst].mean(axis=0)

    def best_threshold(self, share: float) -> float:
        """The threshold with the largest `worst_mean`; of equally good ones the lowest."""
        worst = self.worst_mean(share)
        return float(self.thresholds[np.flatnonzero(worst == worst.max())[-1]])


def class_utilities(
    trials: Trials,
    *,
    far_range: tuple[float, float] = (0.01, 0.1),
    n_thresholds: int = 100,
    epsilon: float = 0.1,
) -> ClassUtilities:
    """Utilities at N evenly spaced thresholds of the calibration range."""
    labels = trials.labels
    if labels is None:
        raise CalibrationError("utilities of classes need the labels of the trials")
    if not trials.n_non_mates:
        raise NoUtilityError("there are no negative pairs, and so no calibration range")
    n = len(labels.names)
    strict, loose = trials.calibration_range(far_range)
    rising = loose + (strict - loose) * np.arange(n_thresholds) / n_thresholds
    n_positive = np.bincount(labels.mates, minlength=n)
    n_negative, impostors = _negative_counts(trials, labels, rising)
    kept = (n_positive > 0) & (n_negative > 0)
    if not kept.any():
        raise NoUtilityError("no label has both positive and negative pairs: its utility is not defined")
    accepted = accepted_trials(trials.mate_scores, (labels.mates,), rising, n)
    sensitivity = (accepted[kept] / n_positive[kept, None])[:, ::-1]
    specificity = (1.0 - impostors[kept] / n_negative[kept, None])[:, ::-1]
    return ClassUtilities(
        epsilon_opis=epsilon_opis(specificity, sensitivity, epsilon),
        threshold_range=(loose, strict),
        thresholds=rising[::-1],
        specificity=specificity,
        sensitivity=sensitivity,
        codes=np.flatnonzero(kept),
        labels=labels.names[kept],
        left_out=np.sort(labels.names[(n_negative > 0) & ~kept]),
    )


def _negative_counts(trials: Trials, labels: TrialLabels, rising: Floats) -> tuple[Ints, Ints]:
    """(L,) negative pairs with a member of each label, and (L, N) those that reach each threshold."""
    n, low = len(labels.names), trials.low_pairs
    total = np.zeros(n, dtype=np.int64) if low is None else low.by_label
    reaching = np.zeros((n, len(rising)), dtype=np.int64) if low is None else low.reaching(rising)
    both = labels.non_mate_queries, labels.non_mate_items
    for codes in both:
        total = total + np.bincount(codes, minlength=n)
    return total, reaching + accepted_trials(trials.non_mate_scores, both, rising, n)


def accepted_trials(scores: Floats, codes: tuple[Codes, ...], rising: Floats, n_labels: int) -> Ints:
    """(L, N) trials that reach each threshold, by each label that they stand under."""
    # Slot j holds the scores that reach j thresholds; those that reach none are of no use.
    table = np.zeros(n_labels * (len(rising) + 1), dtype=np.int64)
    for start in range(0, len(scores), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        reaching = scores[part] >= rising[0]
        slots = np.searchsorted(rising, scores[part][reaching], side="right")
        for one in codes:
            np.add.at(table, one[part][reaching].astype(np.int64) * (len(rising) + 1) + slots, 1)
    return table.reshape(n_labels, -1)[:, :0:-1].cumsum(axis=1)[:, ::-1]


def cosine_margin(distance: float) -> float:
    """Cosine similarity of two normalized embeddings at an L2 distance in [0, 2]."""
    if not 0.0 <= distance <= 2.0:
        raise CalibrationError(f"distance is {distance}, expected 0 to 2 between normalized embeddings")
    return 1.0 - distance**2 / 2.0
