"""Intervals of error rates: what unseen labels will show.

Trials of one label are alike, so that a rate rests on its labels and not on its trials. A percentile
bootstrap over labels is far too short with few of them: with 5 labels its 95 % interval covers the truth in
64 to 88 % of all cases (`benchmarks/quality/interval_coverage.py`). The intervals here come from the
posterior of the rate under a model of labels that differ (`calibration.rates.rate_posterior`). They cover it
in 90 to 100 %, mostly 92 to 98 %, for 5 to 100 labels, even and uneven. Rates of pairs of labels have an
interval of their own, by the jackknife over labels; it covers the truth in 91 to 99.7 %, below 92 % where 30
labels differ strongly. A prediction draws further labels from the posterior, a parametric bootstrap over
labels.

One interval answers two questions, how far off the rate at a fixed threshold is, and what a threshold will
show that was itself chosen on these trials so that at most k of them have the event. The rate at a threshold
rises or falls with it: the true rate at the chosen threshold is below u exactly when the threshold with the
true rate u shows at most k events, and that is the event that an interval at a fixed threshold speaks of. The
benchmark covers both.

Taken for granted: the labels are a sample of those to come, their rates follow a beta distribution closely
enough, and a label's number of trials has nothing to do with its rate. The last does not hold for a
precision, whose trials are themselves outcomes: a label with many returned matches may be one with many wrong
ones. `ratio_interval` is for such rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.label_counts import LabelCounts
from vicinal.calibration.rates.rate_posterior import rate_posterior

__all__ = ["RateInterval", "prediction_interval", "rate_interval", "ratio_interval"]

Floats = npt.NDArray[np.float64]
_N_DRAWS = 4_000
_N_RATIO_DRAWS = 20_000
_N_ANGLES = 20_001
_LARGEST_LOGIT = 30.0


@dataclass(frozen=True)
class RateInterval:
    """A rate with its interval.

    Attributes:
        rate: Share of the trials with the event.
        low: Lower end for the rate of all labels of this kind.
        high: Upper end.
        confidence: Share of such intervals that hold the true rate.
    """

    rate: float
    low: float
    high: float
    confidence: float


def rate_interval(counts: LabelCounts, *, confidence: float = 0.95) -> RateInterval:
    """Interval of a rate, for labels like those that were counted.

    Args:
        counts: Events and trials by label, at a fixed threshold or one chosen on these trials.
        confidence: Share of such intervals that hold the true rate, in (0, 1).

    Raises:
        CalibrationError: The confidence is out of range.
    """
    if counts.labels_per_trial == 2:
        return _pair_interval(counts, confidence)
    low, high = rate_posterior(counts).quantiles(_tails(confidence))
    return _around(counts.rate, low, high, confidence)


def _pair_interval(counts: LabelCounts, confidence: float) -> RateInterval:
    """Interval of a rate of pairs of labels, by the jackknife over labels on the logit scale.

    A rate of pairs is a U-statistic of its labels: without label i, all of its pairs are gone. The
    jackknife variance of such a statistic is too large rather than too small in the mean (Efron and Stein,
    1981). It is known about as well as a chi-squared variable with L - 1 degrees of freedom, so that
    quantiles of Student's t are used, with L the effective number of labels. Effects of two labels multiply
    in the tail of a distribution; the logit makes them add.
    """
    tails = _tails(confidence)
    n, rate = counts.n_trials, (counts.n_events + 0.5) / (counts.n_trials + 1.0)
    variance = max(_jackknife_variance(counts), rate * (1.0 - rate) / n)
    spread = np.sqrt(variance) / (rate * (1.0 - rate))
    freedom = max(1.0, counts.effective_labels - 1.0)
    logits = np.log(rate / (1.0 - rate)) + spread * _student_quantiles(tails, freedom)
    low, high = 1.0 / (1.0 + np.exp(-np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)))
    return _around(counts.rate, low, high, confidence)


def _jackknife_variance(counts: LabelCounts) -> float:
    """Variance of the rate, from the rates without one label; of a single trial with two labels."""
    remaining = counts.n_trials - counts.trials
    usable = remaining > 0
    n = int(usable.sum())
    if n < 2:
        return counts.rate * (1.0 - counts.rate)
    without = (counts.n_events - counts.events[usable]) / remaining[usable]
    return float((n - 1) / n * ((without - without.mean()) ** 2).sum())


def _student_quantiles(shares: list[float], freedom: float) -> Floats:
    """Quantiles of Student's t, v degrees of freedom.

    With x = sqrt(v) tan(a) the density of the angle a is proportional to cos(a)^(v - 1).
    """
    angles = np.linspace(-np.pi / 2.0, np.pi / 2.0, _N_ANGLES)
    density = np.cos(angles) ** (freedom - 1.0)
    below = np.concatenate([[0.0], ((density[1:] + density[:-1]) / 2.0).cumsum()])
    return np.asarray(np.sqrt(freedom) * np.tan(np.interp(shares, below / below[-1], angles)))


def ratio_interval(counts: LabelCounts, *, confidence: float = 0.95, seed: int = 0) -> RateInterval:
    """Interval of a rate whose trials are outcomes too, such as the returned matches of a precision.

    The variance of the ratio sum x_i / sum n_i over labels, by linearization, says how many independent
    trials it is worth. That is itself known no better than a chi-squared variable with L - 1 degrees of
    freedom. The interval is that of Jeffreys for so many trials (Korn and Graubard, 1998, with draws in
    place of their t quantiles).

    Args:
        counts: Events and trials by label, one label a trial.
        confidence: Share of such intervals that hold the true rate, in (0, 1).
        seed: Seed of the draws.

    Raises:
        CalibrationError: The confidence is out of range.
    """
    tails = _tails(confidence)
    rng = np.random.default_rng(seed)
    rate, freedom = counts.rate, max(1.0, counts.effective_labels - 1.0)
    residuals = counts.events - rate * counts.trials
    variance = (residuals**2).sum() * (1.0 + 1.0 / freedom) / counts.n_trials**2
    # Where no label differs from another, each stands for one trial.
    worth = rate * (1.0 - rate) / variance if variance > 0.0 else counts.effective_labels
    drawn = np.minimum(worth * rng.chisquare(freedom, _N_RATIO_DRAWS) / freedom, counts.n_trials)
    rates = rng.beta(rate * drawn + 0.5, (1.0 - rate) * drawn + 0.5)
    low, high = np.quantile(rates, tails)
    return _around(rate, low, high, confidence)


def prediction_interval(
    counts: LabelCounts, n_labels: int, *, confidence: float = 0.95, seed: int = 0
) -> RateInterval:
    """Interval of the rate that a further set of labels will show, each with as many trials as a present one.

    Args:
        counts: Events and trials by label, at a fixed threshold or one chosen on these trials.
        n_labels: Number m of further labels.
        confidence: Share of such intervals that hold the rate which is shown, in (0, 1).
        seed: Seed of the draws.

    Raises:
        CalibrationError: A parameter is out of range.
    """
    if n_labels < 1:
        raise CalibrationError(f"n_labels is {n_labels}, a prediction needs at least 1")
    tails = _tails(confidence)
    rng = np.random.default_rng(seed)
    rates, rho = rate_posterior(counts).draw(rng, _N_DRAWS)
    m = 1.0 / rho - 1.0
    sizes = rng.choice(counts.trials, (_N_DRAWS, n_labels))
    own = rng.beta((rates * m)[:, None], ((1.0 - rates) * m)[:, None], sizes.shape)
    shown = rng.binomial(sizes, own).sum(axis=1) / sizes.sum(axis=1)
    # Where a trial stands under two labels, the effects of both add up in its rate.
    shown = np.clip(rates + counts.labels_per_trial * (shown - rates), 0.0, 1.0)
    low, high = np.quantile(shown, tails)
    return _around(counts.rate, low, high, confidence)


def _tails(confidence: float) -> list[float]:
    if not 0.0 < confidence < 1.0:
        raise CalibrationError(f"confidence is {confidence}, expected a share between 0 and 1")
    return [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]


def _around(rate: float, low: float, high: float, confidence: float) -> RateInterval:
    return RateInterval(rate, float(min(low, rate)), float(max(high, rate)), confidence)
