"""Guarantees that take nothing for granted but that the labels are exchangeable.

Label i of n has the share L_i(t) of its trials at or above the threshold t, or below it, for a miss. The
shares may be anything in [0, 1]: alike, or 0 for most labels and 1 for a few.

The safety line of an interval is a Bayesian bootstrap over labels (Rubin, 1981) with one label more, in which
every trial has the event, for the upper end, and none for the lower. Where each label has the event always or
never it is the interval of Clopper and Pearson (1934): a rate of Beta(k + 1, n - k) for k of n labels.

The expected rate of a new label is at most alpha at every threshold with

    (sum L_i(t) + 1) / (n + 1) <= alpha

(conformal risk control; Angelopoulos et al., 2024). That needs n >= 1 / alpha - 1 labels. A rate is surely at
most alpha, with a confidence c, where the upper end of the one-sided safety line is: without an event that
needs log(1 - c) / log(1 - alpha) labels, 59 for 5 % at 95 %.

A score s is as high as a stranger's with the p-value (sum L_i(s) + 1) / (n + 1): the share of labels that the
gallery lacks whose queries would score as high.

None of this speaks of another day, a larger gallery or another kind of stranger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal.calibration.arrays import Codes, Floats, Ints
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.label_counts import LabelCounts

_N_DRAWS = 10_000


def safety_line(
    counts: LabelCounts, *, confidence: float = 0.95, beside: float | None = None
) -> tuple[float, float]:
    """Ends of an interval of a rate that holds whatever labels are like.

    Args:
        counts: Events and trials by label, one label a trial.
        confidence: Share of such intervals that hold the true rate, in (0, 1).
        beside: Trials of the one label more; the mean of all when None.

    Raises:
        CalibrationError: The confidence is out of range, or each trial stands under two labels.
    """
    tail = (1.0 - _share(confidence)) / 2.0
    low = float(np.quantile(_drawn_rates(counts, with_event=0.0, beside=beside), tail))
    return low, upper_bound(counts, confidence=1.0 - tail, beside=beside)


def upper_bound(counts: LabelCounts, *, confidence: float, beside: float | None = None) -> float:
    """The upper end alone: the true rate is at most this with the confidence; CalibrationError as above."""
    return float(np.quantile(_drawn_rates(counts, with_event=1.0, beside=beside), _share(confidence)))


def expected_rate(counts: LabelCounts, weights: Floats | None = None) -> float:
    """The largest rate that a new label, exchangeable with these, can have in the mean; with (L,) weights up
    to 1, where labels were drawn with other probabilities (weighted conformal prediction; Tibshirani et al.,
    2019), that of a label of the largest.
    """
    shares = counts.events / counts.trials
    of_labels = np.ones(counts.n_labels) if weights is None else weights
    return (float(of_labels @ shares) + 1.0) / (float(of_labels.sum()) + 1.0)


@dataclass(frozen=True)
class StrangerScores:
    """Best scores of queries whose label the gallery lacks, which tell how rare a score is among strangers.

    Attributes:
        scores: (n,) rising.
        shares: (n + 1,) sum over labels of the share of their trials from each place on, falling to 0.
        n_labels: Labels behind them.
    """

    scores: Floats
    shares: Floats
    n_labels: int

    @classmethod
    def of(cls, scores: Floats, codes: Codes, totals: Ints | None = None) -> Self:
        """Strangers by (n,) best scores and labels as numbers; (L,) totals where these are the highest."""
        sizes = np.bincount(codes) if totals is None else totals
        order = np.argsort(scores, kind="stable")
        from_here = np.cumsum(1.0 / sizes[codes[order]][::-1])[::-1]
        return cls(scores[order], np.append(from_here, 0.0), int(np.count_nonzero(sizes)))

    def p_value(self, score: float) -> float:
        """Share of strangers' labels that would score as high, in (0, 1]."""
        place = int(np.searchsorted(self.scores, score, side="left"))
        return (float(self.shares[place]) + 1.0) / (self.n_labels + 1)


def labels_for_expected(rate: float) -> int:
    """The fewest labels by which an expected rate can be held."""
    return max(1, math.ceil(1.0 / rate - 1.0 - 1e-9))


def labels_for_bound(rate: float, *, confidence: float) -> int:
    """The fewest labels by which a rate can be held with a confidence: none of them with an event."""
    return math.ceil(math.log(1.0 - _share(confidence)) / math.log(1.0 - rate) - 1e-9)


def _drawn_rates(counts: LabelCounts, *, with_event: float, beside: float | None) -> Floats:
    """(D,) rates under random weights of the labels, and of one more with this share of events."""
    if counts.labels_per_trial != 1:
        raise CalibrationError("trials of pairs stand under two labels: there is no safety line for them")
    sizes = np.append(counts.trials, counts.trials.mean() if beside is None else beside)
    events = np.append(counts.events, with_event * sizes[-1])
    # Weights of equal labels add up: the sum of k draws of Exp(1) is Gamma(k).
    (events, sizes), alike = np.unique(np.stack([events, sizes]), axis=1, return_counts=True)
    weights = np.random.default_rng(0).standard_gamma(alike, (_N_DRAWS, len(alike)))
    return np.asarray((weights @ events) / (weights @ sizes))


def _share(confidence: float) -> float:
    if not 0.0 < confidence < 1.0:
        raise CalibrationError(f"confidence is {confidence}, expected a share between 0 and 1")
    return confidence
