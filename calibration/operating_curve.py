"""Operating curves: how often a threshold accepts what it should reject, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration.errors import CalibrationError

__all__ = ["OperatingCurve", "Trials", "operating_curve", "rate_at_or_above"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trials:
    """Scores of one calibration, higher is more alike; a score is accepted when it reaches the threshold.

    Attributes:
        mate_scores: Scores of (query, item) pairs of one class; the positive pairs.
        non_mate_scores: Scores of pairs of different classes; the negative pairs.
        best_mate_scores: For each query with a mate, its best score with one.
        best_scores_without_mate: For each query without a mate, its best score with anything.
    """

    mate_scores: Floats
    non_mate_scores: Floats
    best_mate_scores: Floats
    best_scores_without_mate: Floats

    def __post_init__(self) -> None:
        for name, scores in vars(self).items():
            if np.isnan(scores).any():
                raise CalibrationError(f"{name} holds NaN")


@dataclass(frozen=True)
class OperatingCurve:
    """Rates over the threshold, ascending.

    Attributes:
        thresholds: (n,) thresholds.
        far: (n,) false accept rate, the share of negative pairs that reach the threshold.
        frr: (n,) false reject rate, the share of positive pairs that do not.
        fpir: (n,) false positive identification rate, the share of queries without a mate that get
            any match (ISO/IEC 19795-1).
        fnir: (n,) false negative identification rate, the share of queries with a mate that get
            none of their mates.
    """

    thresholds: Floats
    far: Floats
    frr: Floats
    fpir: Floats
    fnir: Floats


def operating_curve(trials: Trials, thresholds: npt.ArrayLike | None = None) -> OperatingCurve:
    """Rates at the given thresholds, or at 201 quantiles of all scores.

    A rate without trials is NaN.

    Args:
        trials: The scores.
        thresholds: (n,) thresholds; they are sorted.
    """
    if thresholds is None:
        scores = np.concatenate([trials.mate_scores, trials.non_mate_scores])
        thresholds = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 201))) if len(scores) else []
    at = np.sort(np.asarray(thresholds, dtype=np.float64))
    return OperatingCurve(
        thresholds=at,
        far=rate_at_or_above(trials.non_mate_scores, at),
        frr=1.0 - rate_at_or_above(trials.mate_scores, at),
        fpir=rate_at_or_above(trials.best_scores_without_mate, at),
        fnir=1.0 - rate_at_or_above(trials.best_mate_scores, at),
    )


def rate_at_or_above(scores: Floats, thresholds: Floats) -> Floats:
    """Share of the scores that reach each threshold; NaN without scores."""
    if not len(scores):
        return np.full(len(thresholds), np.nan)
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return (len(scores) - below) / len(scores)
