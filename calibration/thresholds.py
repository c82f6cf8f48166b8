"""Thresholds in [0, 1] that hold a rate on given trials, counted exactly, ties included.

A score is accepted when it reaches the threshold. Each function answers None when no threshold holds the
rate; `best_*` say what can be reached instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.calibration.negative_pairs import LowPairs

__all__ = [
    "best_precision",
    "highest_threshold",
    "lowest_precise_threshold",
    "lowest_threshold",
    "n_allowed",
]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_LOWEST, _HIGHEST = 0.0, 1.0


def n_allowed(n_trials: int, rate: float) -> int:
    """The largest number of trials whose share of all is at most the rate."""
    allowed = int(rate * n_trials)
    # The product may round to the other side of a whole number; what counts is the quotient.
    if (allowed + 1) / n_trials <= rate:
        allowed += 1
    elif allowed / n_trials > rate:
        allowed -= 1
    return allowed


def lowest_threshold(scores: Floats, rate: float, low: LowPairs | None = None) -> float | None:
    """The lowest threshold that at most the given share of the scores reaches.

    Args:
        scores: (n,) at least one.
        rate: Share in [0, 1).
        low: Further trials, all of lower scores, of which only counts are known; where the threshold lies
            among them, it is the edge of a bin.
    """
    allowed = n_allowed(len(scores) + (low.n if low else 0), rate)
    if low is not None and allowed >= len(scores):
        return low.lowest_edge(allowed - len(scores))
    rank = len(scores) - 1 - allowed
    # Every score up to the first one too many must stay below the threshold, ties included.
    threshold = max(_LOWEST, float(np.nextafter(np.partition(scores, rank)[rank], np.inf)))
    return threshold if threshold <= _HIGHEST else None


def highest_threshold(scores: Floats, rate: float) -> float | None:
    """The highest threshold that at most the given share of the scores misses.

    Args:
        scores: (n,) at least one.
        rate: Share in [0, 1).
    """
    rank = n_allowed(len(scores), rate)
    # The first score that may not be missed; a threshold above it would miss it too.
    threshold = min(_HIGHEST, float(np.partition(scores, rank)[rank]))
    return threshold if threshold >= _LOWEST else None


def lowest_precise_threshold(scores: Floats, is_mate: Flags, precision: float) -> tuple[float, int] | None:
    """The lowest threshold at which the returned candidates have the precision, and how many those are.

    Precision can fall and rise again along the threshold; what counts is the lowest that has it.

    Args:
        scores: (n,) scores of the candidates.
        is_mate: (n,) whether each is a mate.
        precision: Share in (0, 1].
    """
    distinct, returned, shares = _precision_steps(scores, is_mate)
    precise = np.flatnonzero(shares >= precision)
    if not len(precise):
        return None
    step = int(precise[-1])
    # Down to just above the next lower score the same candidates are returned.
    below = distinct[step + 1] if step + 1 < len(distinct) else -np.inf
    return max(_LOWEST, float(np.nextafter(below, np.inf))), int(returned[step])


def best_precision(scores: Floats, is_mate: Flags) -> float:
    """The highest precision at any threshold that returns something; 0 without candidates."""
    return float(max(_precision_steps(scores, is_mate)[2], default=0.0))


def _precision_steps(scores: Floats, is_mate: Flags) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Distinct scores from the highest down, candidates that reach each, and the share of mates in them."""
    usable = scores >= _LOWEST
    distinct, inverse = np.unique(-scores[usable], return_inverse=True)
    returned = np.bincount(inverse, minlength=len(distinct)).cumsum()
    mates = np.bincount(inverse[is_mate[usable]], minlength=len(distinct)).cumsum()
    return -distinct, returned, mates / returned
