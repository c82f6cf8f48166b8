"""Paired bootstrap: how far the difference of two figures on the same queries can be trusted.

Both figures are measured on the same queries, so that what makes a query hard is in both and cancels.
Labels are drawn with replacement, each with all of its queries, because the queries of one label are alike
(Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). The interval runs between
the percentiles of the drawn differences. Labels in which both agree widen nothing, and with few labels a
percentile interval is too short: `n_labels` says how many there were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Codes

__all__ = ["N_DRAWS", "PairedDifference", "paired_difference", "paired_variance_difference"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N_DRAWS = 2000
# Drawn numbers of labels held at a time.
_MOST_HELD = 2**22


@dataclass(frozen=True)
class PairedDifference:
    """Two figures on the same queries.

    Attributes:
        old: The first figure.
        new: The second.
        low: Lower end of the interval of new - old.
        high: Upper end.
        n_labels: Labels that were drawn from.
    """

    old: float
    new: float
    low: float
    high: float
    n_labels: int

    @property
    def difference(self) -> float:
        """What the second figure has more than the first."""
        return self.new - self.old


def paired_difference(
    old: Floats,
    new: Floats,
    labels: Codes,
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    confidence: float = 0.95,
) -> PairedDifference:
    """Difference of two means over the same queries.

    Args:
        old: (n,) figure of each query before, such as 1 for a hit.
        new: (n,) the same after.
        labels: (n,) number of each query's label.
        n_draws: Draws of all labels.
        seed: Seed of the draws.
        confidence: Share of the drawn differences between the ends, in (0, 1).

    Raises:
        CalibrationError: There are no queries, their numbers differ, or the confidence is out of range.
    """
    if not len(labels) or not len(old) == len(new) == len(labels):
        raise CalibrationError(
            f"{len(old)} and {len(new)} figures for {len(labels)} labels: expected one of each a query"
        )
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    change = np.bincount(codes, weights=np.asarray(new, np.float64) - old)
    drawn = np.concatenate(
        [(times @ change) / (times @ counts) for times in _draws(len(counts), n_draws, seed)]
    )
    low, high = np.quantile(drawn, _tails(confidence))
    return PairedDifference(float(np.mean(old)), float(np.mean(new)), float(low), float(high), len(counts))


def paired_variance_difference(
    old: Floats, new: Floats, *, n_draws: int = N_DRAWS, seed: int = 0, confidence: float = 0.95
) -> PairedDifference:
    """Difference of two variances across the same labels, averaged over thresholds, as OPIS is.

    Labels drawn twice make a drawn variance too small by (T - 1) / T in the mean; that is given back.

    Args:
        old: (T, N) utility of each label at each threshold before.
        new: (T, N) the same after; its thresholds may be others.
        n_draws: Draws of all labels.
        seed: Seed of the draws.
        confidence: Share of the drawn differences between the ends, in (0, 1).

    Raises:
        CalibrationError: There are fewer than two labels, their numbers differ, or the confidence is out of
            range.
    """
    n = len(old)
    if n < 2 or len(new) != n:
        raise CalibrationError(f"utilities of {n} and {len(new)} labels: expected two or more, in both")
    drawn = np.concatenate(
        [_drawn_variance(times, new) - _drawn_variance(times, old) for times in _draws(n, n_draws, seed)]
    )
    low, high = np.quantile(drawn * (n / (n - 1)), _tails(confidence))
    before, after = (float(one.var(axis=0).mean()) for one in (old, new))
    return PairedDifference(before, after, float(low), float(high), n)


def _drawn_variance(times: Counts, utilities: Floats) -> Floats:
    """(B,) variance over drawn labels, averaged over thresholds."""
    # Around the mean of all labels, so that squares are small and nothing is lost in their difference.
    centered = utilities - utilities.mean(axis=0)
    mean = times @ centered / len(utilities)
    return np.asarray((times @ centered**2 / len(utilities) - mean**2).mean(axis=1))


def _draws(n_labels: int, n_draws: int, seed: int) -> Iterator[Counts]:
    """How often each label is drawn, some draws at a time, (B, n_labels)."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _MOST_HELD // n_labels)
    for start in range(0, n_draws, at_once):
        n = min(at_once, n_draws - start)
        yield rng.multinomial(n_labels, np.full(n_labels, 1.0 / n_labels), size=n)


def _tails(confidence: float) -> list[float]:
    if not 0.0 < confidence < 1.0:
        raise CalibrationError(f"confidence is {confidence}, expected a share between 0 and 1")
    return [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
