"""Utility of each class over the calibration range, OPIS, and the threshold at which classes fare best.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024), eq. 1
to 3, on the pairs of a calibration, in any space in which higher is more alike: final scores s, whose
distance is 1 - s, or L2 distances d, scored as 1 - d / 2. U_i(t) is the harmonic mean of the share of class
i's positive pairs that reach t and the share of the negative pairs with a member of class i that do not.
The first threshold lies one step inside of the strict end of
the range. Thresholds are evenly spaced, and so are their distances: the one is a straight line in the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.consistency.opis import Opis, epsilon_opis
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Codes, TrialLabels, Trials

__all__ = ["ClassUtilities", "NoUtilityError", "class_utilities"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class NoUtilityError(CalibrationError):
    """No label has both positive and negative pairs."""


@dataclass(frozen=True)
class ClassUtilities(Opis):
    """OPIS over falling scores, with what each class fares at them.

    Attributes:
        codes: (T,) number of each row's label in the trials.
    """

    codes: Counts

    def worst(self, n: int) -> npt.NDArray[np.int64]:
        """Rows of the n classes with the lowest mean utility over the range, the worst first."""
        return np.asarray(np.argsort(self.utilities.mean(axis=1), kind="stable")[:n], dtype=np.int64)

    def worst_mean(self, share: float) -> Floats:
        """(N,) mean utility of the worst share of the classes, at least one, ranked anew at each threshold.

        Args:
            share: In (0, 1]; 1 is the mean over all classes.
        """
        n_worst = max(1, int(share * len(self.utilities)))
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
    """Utilities at N evenly spaced thresholds of the calibration range.

    Args:
        trials: Scores with labels.
        far_range: Shares of all negative pairs that reach the ends of the range, the stricter first.
        n_thresholds: Number N of thresholds.
        epsilon: Share of the classes in the best and in the worst group; at least one class each.

    Raises:
        CalibrationError: The trials carry no labels, or `epsilon` is out of range.
        NoUtilityError: No label has positive and negative pairs.
    """
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
    accepted = _accepted(trials.mate_scores, labels.mates, rising, n)
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


def _negative_counts(trials: Trials, labels: TrialLabels, rising: Floats) -> tuple[Counts, Counts]:
    """(L,) negative pairs with a member of each label, and (L, N) those that reach each threshold."""
    n, low = len(labels.names), trials.low_pairs
    total = np.zeros(n, dtype=np.int64) if low is None else low.by_label
    reaching = np.zeros((n, len(rising)), dtype=np.int64) if low is None else low.reaching(rising)
    for codes in (labels.non_mate_queries, labels.non_mate_items):
        total = total + np.bincount(codes, minlength=n)
        reaching = reaching + _accepted(trials.non_mate_scores, codes, rising, n)
    return total, reaching


def _accepted(scores: Floats, codes: Codes, rising: Floats, n_labels: int) -> Counts:
    """(L, N) trials of each label that reach each threshold."""
    # Slot j holds the scores that reach j thresholds; those that reach none are of no use.
    reaching = scores >= rising[0]
    slots = np.searchsorted(rising, scores[reaching], side="right")
    cells = codes[reaching].astype(np.int64) * (len(rising) + 1) + slots
    table = np.bincount(cells, minlength=n_labels * (len(rising) + 1)).reshape(n_labels, -1)
    return table[:, :0:-1].cumsum(axis=1)[:, ::-1]
