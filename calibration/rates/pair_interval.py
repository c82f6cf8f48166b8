"""Interval of a rate of pairs of labels, such as FAR, by a model of labels whose effects add up.

Label i has an effect e_i ~ N(0, tau^2), and a pair of images of the labels i and j has the event with the
odds exp(c + e_i + e_j). Half of what makes one rate of pairs differ from the next is thus seen in the labels'
own shares: x_i of n_i pairs of label i have the event, with the odds exp(eta + e_i), which tells how likely
each tau is. The prior of tau is half normal with a scale of 0.7.

For a given tau the measured rate is the true one times the square of the mean of exp(e_i) over the labels,
relative to what it is in the mean. Let r be the squared coefficient of variation of a label's rate (below
exp(tau^2) - 1, because rates end at 1) and v = log(1 + r / (L - 1)), with L the effective number of labels.
The mean is about lognormal, and log(true rate / measured rate) about N(v, 4 v); to this comes the chance of
the n pairs. The interval holds the quantiles of the mixture over tau.

The mixture is what few labels need: without a label of strong effect among them, the measured rate is too low
and the labels look too much alike, both at once. A jackknife over labels asks the labels alone how much they
differ. It is short there, and too long where chance dominates, which it counts under both labels.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vicinal.calibration.rates.label_counts import LabelCounts

__all__ = ["pair_quantiles"]

Floats = npt.NDArray[np.float64]

_SCALE = 0.7
_TAU = np.concatenate([[0.03], np.geomspace(0.1, 2.5, 20)])
_LOG_PRIOR = np.log(np.gradient(_TAU)) - 0.5 * (_TAU / _SCALE) ** 2
_N_ODDS = 201
_LARGEST_LOGIT = 25.0
# Steps of a search, and of a sum over the posterior of eta, in units of its standard error.
_ZOOM = np.linspace(-1.0, 1.0, 13)
_AROUND = np.linspace(-4.0, 4.0, 17)
# Even in probability.
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 400) for i in range(400)])
_Z = np.linspace(-5.0, 5.0, 81)
_DENSITY = np.exp(-0.5 * _Z**2) / np.exp(-0.5 * _Z**2).sum()


def pair_quantiles(counts: LabelCounts, shares: list[float]) -> Floats:
    """Quantiles of the rate of all pairs of labels like these.

    Args:
        counts: Events and trials of at least three labels, two labels a trial.
        shares: In (0, 1).

    Returns:
        One rate each, in (0, 1).
    """
    n, rate = counts.n_trials, (counts.n_events + 0.5) / (counts.n_trials + 1.0)
    weights = _tau_weights(counts, rate)
    variance = np.log1p(_squared_variation(rate) / max(1.0, counts.effective_labels - 1.0))
    by_chance = 1.0 / (n * rate * (1.0 - rate))
    centers = np.log(rate / (1.0 - rate)) + variance / (1.0 - rate)
    spreads = np.sqrt(4.0 * variance / (1.0 - rate) ** 2 + by_chance)
    logits = centers[:, None] + spreads[:, None] * _NORMAL
    order = np.argsort(logits, axis=None)
    below = np.repeat(weights / len(_NORMAL), len(_NORMAL))[order].cumsum()
    found = np.interp(shares, below, logits.ravel()[order])
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(found, -_LARGEST_LOGIT, _LARGEST_LOGIT))))


def _tau_weights(counts: LabelCounts, rate: float) -> Floats:
    """(T,) posterior probabilities of the values of tau; their sum is 1."""
    logits, likelihoods = _likelihoods(counts)
    step = logits[1] - logits[0]
    by_chance = 1.0 / (counts.n_trials * rate * (1.0 - rate))
    found = np.empty(len(_TAU))
    for place, tau in enumerate(_TAU):
        # Narrower than a step no distribution of labels is told from one label.
        spread = float(np.hypot(tau, step))
        error = float(np.sqrt(spread**2 / counts.n_labels + by_chance))
        center, width = np.log(rate / (1.0 - rate)) - min(0.5 * tau**2, 2.5), 0.3 + 1.5 * tau
        while width > error:
            tried = center + width * _ZOOM
            center = tried[np.argmax(_log_likelihood(logits, likelihoods, tried, spread))]
            width /= 4.0
        around = _log_likelihood(logits, likelihoods, center + error * _AROUND, spread)
        found[place] = around.max() + np.log(error * np.exp(around - around.max()).sum())
    weights = np.exp(found + _LOG_PRIOR - (found + _LOG_PRIOR).max())
    return np.asarray(weights / weights.sum())


def _likelihoods(counts: LabelCounts) -> tuple[Floats, Floats]:
    """(V,) logits, and (L, V) likelihoods of each label's counts at these, the largest 1."""
    events, others = counts.events + 0.5, counts.trials - counts.events + 0.5
    own, error = np.log(events / others), np.sqrt(1.0 / events + 1.0 / others)
    logits = np.linspace((own - 5.0 * error).min(), (own + 5.0 * error).max(), _N_ODDS)
    event, other = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    logs = counts.events[:, None] * event + (counts.trials - counts.events)[:, None] * other
    return logits, np.exp(logs - logs.max(axis=1, keepdims=True))


def _log_likelihood(logits: Floats, likelihoods: Floats, centers: Floats, spread: float) -> Floats:
    """(E,) log-likelihood of all labels for each center of their normal distribution."""
    density = np.exp(-0.5 * ((logits[:, None] - centers) / spread) ** 2)
    density /= density.sum(axis=0) + 1e-300
    return np.asarray(np.log(likelihoods @ density + 1e-300).sum(axis=0))


def _squared_variation(rate: float) -> Floats:
    """(T,) squared coefficient of variation of labels' rates whose mean is the rate, for each tau."""
    low, high = np.full(len(_TAU), -_LARGEST_LOGIT - 5.0), np.full(len(_TAU), _LARGEST_LOGIT)
    for _ in range(40):
        middle = (low + high) / 2.0
        is_above = _rates_of(middle) @ _DENSITY > rate
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    rates = _rates_of(low)
    return np.asarray((rates**2 @ _DENSITY) / (rates @ _DENSITY) ** 2 - 1.0)


def _rates_of(centers: Floats) -> Floats:
    """(T, Z) rates of labels around the center of each tau."""
    return np.asarray(1.0 / (1.0 + np.exp(-centers[:, None] - _TAU[:, None] * _Z)))
