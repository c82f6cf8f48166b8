"""Utility of each class on final scores, and the threshold at which the classes fare best.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024), eq. 1,
with final scores in place of distances: U_i(t) is the harmonic mean of the share of class i's positive pairs
that reach t and the share of the negative pairs with a member of class i that do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration.errors import CalibrationError
from calibration.opis import utility
from calibration.trials import Codes, Trials

__all__ = ["ClassUtilities", "class_utilities"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassUtilities:
    """Utility of classes over the calibration range.

    Attributes:
        thresholds: (N,) falling scores; the first lies one step inside of the range's upper end.
        utilities: (T, N) utility of each class with positive and negative pairs, in [0, 1].
        names: (T,) labels of the rows.
    """

    thresholds: Floats
    utilities: Floats
    names: npt.NDArray[np.object_]

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
    trials: Trials, *, far_range: tuple[float, float] = (0.01, 0.1), n_thresholds: int = 100
) -> ClassUtilities:
    """Utilities at N evenly spaced thresholds of the calibration range.

    Args:
        trials: Scores with labels.
        far_range: Shares of all negative pairs that reach the ends of the range, the stricter first.
        n_thresholds: Number N of thresholds.

    Raises:
        CalibrationError: The trials carry no labels, or no label has positive and negative pairs.
    """
    labels = trials.labels
    if labels is None:
        raise CalibrationError("utilities of classes need the labels of the trials")
    n = len(labels.names)
    strict, loose = np.quantile(trials.non_mate_scores, [1.0 - far for far in far_range])
    rising = loose + (strict - loose) * np.arange(n_thresholds) / n_thresholds
    n_positive = np.bincount(labels.mates, minlength=n)
    n_negative = sum(
        (np.bincount(codes, minlength=n) for codes in (labels.non_mate_queries, labels.non_mate_items)),
        start=np.zeros(n, dtype=np.int64),
    )
    kept = (n_positive > 0) & (n_negative > 0)
    if not kept.any():
        raise CalibrationError("no label has both positive and negative pairs: its utility is not defined")
    accepted = _accepted(trials.mate_scores, labels.mates, rising, n)
    impostors = _accepted(trials.non_mate_scores, labels.non_mate_queries, rising, n)
    impostors += _accepted(trials.non_mate_scores, labels.non_mate_items, rising, n)
    sensitivity = accepted[kept] / n_positive[kept, None]
    specificity = 1.0 - impostors[kept] / n_negative[kept, None]
    return ClassUtilities(rising[::-1], utility(specificity, sensitivity)[:, ::-1], labels.names[kept])


def _accepted(scores: Floats, codes: Codes, rising: Floats, n_labels: int) -> Counts:
    """(L, N) trials of each label that reach each threshold."""
    # Slot j holds the scores that reach j thresholds; those that reach none are of no use.
    reaching = scores >= rising[0]
    slots = np.searchsorted(rising, scores[reaching], side="right")
    cells = codes[reaching].astype(np.int64) * (len(rising) + 1) + slots
    table = np.bincount(cells, minlength=n_labels * (len(rising) + 1)).reshape(n_labels, -1)
    return table[:, :0:-1].cumsum(axis=1)[:, ::-1]
