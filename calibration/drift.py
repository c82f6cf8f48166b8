"""Drift: whether the queries that come in still look like those that the threshold was calibrated on.

Two signs, both from the top score of each query and nothing else:

- the population stability index between the histograms of top scores, then and now, in bins with equal
  shares of the calibration's scores: PSI = sum_b (q_b - p_b) log(q_b / p_b);
- the change of the share of queries without a match, with its interval (Newcombe, 1998, method 10).

Only counts are kept: no score, query or image can be read from them. A change of who asks (more absent
products than before) shows as well as a change of the images; the signs say that something changed, not what.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.errors import CalibrationError

Level = Literal["none", "moderate", "strong"]

# The usual rule of thumb for PSI: below 0.1 no shift, above 0.25 a large one.
_MODERATE, _STRONG = 0.1, 0.25
# A PSI that chance alone exceeds more often than once in a hundred says nothing.
_CHANCE = 0.99
# Added to each bin: an empty one would make PSI infinite.
_SMOOTHING = 0.5


@dataclass(frozen=True)
class TopScoreCounts:
    """Histogram of top scores, and how many queries had no match.

    Attributes:
        edges: (B - 1,) rising edges between the bins, fixed when the threshold was calibrated.
        counts: (B,) queries whose top score lies in each bin; one on an edge belongs to the bin above.
        n_no_match: Queries whose top score did not reach the threshold.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    n_no_match: int

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.edges) + 1 or list(self.edges) != sorted(set(self.edges)):
            raise CalibrationError(
                f"{len(self.counts)} counts and {len(self.edges)} edges, expected rising edges and "
                "one count more"
            )
        if min(*self.counts, self.n_no_match) < 0 or self.n_no_match > self.n:
            raise CalibrationError("a count is negative, or more queries had no match than there were")

    @property
    def n(self) -> int:
        """Queries that were counted."""
        return sum(self.counts)

    @property
    def no_match_share(self) -> float:
        """Share of the queries without a match; 0 before the first."""
        return self.n_no_match / self.n if self.n else 0.0

    @classmethod
    def of_calibration(cls, top_scores: Floats, threshold: float, *, n_bins: int = 10) -> Self:
        """Count a calibration's queries by their (Q,) best scores in at most so many bins, two at least, with
        equal shares of them; ties make some bins wider.
        """
        if not len(top_scores) or n_bins < 2:
            raise CalibrationError(f"{len(top_scores)} queries in {n_bins} bins: expected at least 1 in 2")
        edges = np.unique(np.quantile(top_scores, np.arange(1, n_bins) / n_bins, method="higher")).tolist()
        return cls(tuple(edges), (0,) * (len(edges) + 1), 0).updated(top_scores, threshold)

    def emptied(self) -> Self:
        """The same bins without queries, to count those to come."""
        return type(self)(self.edges, (0,) * len(self.counts), 0)

    def updated(self, top_scores: npt.ArrayLike, threshold: float) -> Self:
        """The counts with further queries, by the best score of each; -inf where the gallery was empty."""
        scores = np.atleast_1d(np.asarray(top_scores, dtype=np.float64))
        bins = np.searchsorted(self.edges, scores, side="right")
        further = np.bincount(bins, minlength=len(self.counts)) + np.asarray(self.counts)
        no_match = self.n_no_match + int((scores < threshold).sum())
        return type(self)(self.edges, tuple(further.tolist()), no_match)


@dataclass(frozen=True)
class Drift:
    """Drift of the queries."""

    psi: float  # Population stability index of the top scores, at least 0
    chance_psi: float  # What PSI reaches by chance in one of a hundred comparisons of so many queries
    no_match_interval: tuple[float, float]  # 95 % interval of the change of the share without a match
    # `none`, `moderate` (PSI from 0.1, or a change of the no-match share beyond chance) or `strong` (PSI from
    # 0.25); a PSI within chance counts as none.
    level: Level
    n_queries: int  # Queries counted since


def measure_drift(reference: TopScoreCounts, current: TopScoreCounts) -> Drift:
    """Compare the queries since with those of the calibration, in the same bins."""
    if reference.edges != current.edges:
        raise CalibrationError("the counts have other bins than the calibration: start them anew from it")
    if not reference.n or not current.n:
        raise CalibrationError(f"{reference.n} queries then and {current.n} now: drift needs both")
    psi = population_stability_index(np.array(reference.counts), np.array(current.counts))
    chance = _chance_psi(len(reference.counts), reference.n, current.n)
    change = share_change((reference.n_no_match, reference.n), (current.n_no_match, current.n))
    level: Level = "none"
    if psi >= _STRONG and psi > chance:
        level = "strong"
    elif (psi >= _MODERATE and psi > chance) or change[0] > 0.0 or change[1] < 0.0:
        level = "moderate"
    return Drift(psi, chance, change, level, current.n)


def population_stability_index(expected: Ints, actual: Ints) -> float:
    """PSI between (B,) counts then and now over the same bins; half a count is added to each bin."""
    p, q = (
        (counts + _SMOOTHING) / (counts.sum() + _SMOOTHING * len(counts)) for counts in (expected, actual)
    )
    return float(((q - p) * np.log(q / p)).sum())


def share_change(then: tuple[int, int], now: tuple[int, int]) -> tuple[float, float]:
    """95 % interval of now minus then (Newcombe, 1998, method 10), for queries independent of each other."""
    (a, n), (b, m) = then, now
    z = NormalDist().inv_cdf(0.975)
    p, q = a / n, b / m
    (p_low, p_high), (q_low, q_high) = _wilson(p, n, z), _wilson(q, m, z)
    low = q - p - float(np.hypot(q - q_low, p_high - p))
    return low, q - p + float(np.hypot(q_high - q, p - p_low))


def _wilson(share: float, n: int, z: float) -> tuple[float, float]:
    """Score interval of one share (Wilson, 1927)."""
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return center - half, center + half


def _chance_psi(n_bins: int, n_then: int, n_now: int) -> float:
    """PSI without drift is about chi-squared with B - 1 degrees of freedom times (1 / n + 1 / m)."""
    freedom = n_bins - 1
    if not freedom:
        return 0.0
    # Wilson and Hilferty (1931).
    spread = 2.0 / (9.0 * freedom)
    quantile = freedom * (1.0 - spread + NormalDist().inv_cdf(_CHANCE) * np.sqrt(spread)) ** 3
    return float(quantile * (1.0 / n_then + 1.0 / n_now))
