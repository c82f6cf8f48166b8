"""Operating curves: how often a threshold accepts what it should reject, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.trials import Trials

__all__ = ["OperatingCurve", "operating_curve", "rate_at_or_above"]

Floats = npt.NDArray[np.float64]


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
        far=_false_accept_rate(trials, at),
        frr=1.0 - rate_at_or_above(trials.mate_scores, at),
        fpir=rate_at_or_above(trials.best_scores_without_mate, at),
        fnir=1.0 - rate_at_or_above(trials.best_mate_scores, at),
    )


def _false_accept_rate(trials: Trials, thresholds: Floats) -> Floats:
    if not trials.n_non_mates:
        return np.full(len(thresholds), np.nan)
    return np.asarray(trials.n_non_mates_reaching(thresholds) / trials.n_non_mates)


def rate_at_or_above(scores: Floats, thresholds: Floats) -> Floats:
    """Share of the scores that reach each threshold; NaN without scores."""
    if not len(scores):
        return np.full(len(thresholds), np.nan)
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return (len(scores) - below) / len(scores)
