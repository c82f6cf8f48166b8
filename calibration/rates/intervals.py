"""Intervals of error rates: what unseen labels will show.

Trials of one label are alike, so that a rate rests on its labels and not on its trials. A percentile
bootstrap over labels is far too short with few of them: with 5 labels its 95 % interval covers the truth in
64 to 84 % of all cases (`benchmarks/quality/interval_coverage.py`). The intervals here come from the
posterior of the rate under a model of labels that differ (below). They cover it in 92 to 98 %, for 5 to 100
labels, even and uneven. Rates of pairs of labels have an interval of their own, which covers it in 93 to 98 %
for 10 to 30 labels.

One interval answers two questions, how far off the rate at a fixed threshold is, and what a threshold will
show that was itself chosen on these trials so that at most k of them have the event. The rate at a threshold
rises or falls with it: the true rate at the chosen threshold is below u exactly when the threshold with the
true rate u shows at most k events, and that is the event that an interval at a fixed threshold speaks of. The
benchmark covers both.

Where labels have the event almost always or never, or none or all trials have it, the interval is also at
least as wide as the safety line (`calibration.rates.guarantees`), which takes no model for granted.

Taken for granted: the labels are a sample of those to come, their rates follow a beta distribution closely
enough, and a label's number of trials has nothing to do with its rate. The last does not hold for a
precision, whose trials are themselves outcomes: a label with many returned matches may be one with many wrong
ones. `ratio_interval` is for such rates.

The model: label i has its own rate p_i ~ Beta(mu M, (1 - mu) M), and x_i of its n_i trials have the event,
x_i ~ Binomial(n_i, p_i). Two trials of one label then agree with correlation rho = 1 / (M + 1): rho near 0
means that labels are all alike, rho near 1 that each label has the event always or never. mu is the rate
of all labels of this kind.

The prior of rho is Beta(1, 2), its mean 1/3: with few labels the data hardly tell alike labels from unlike
ones, and then the unlike must be reckoned with, or intervals come out far too short. Where each trial
stands under two labels, as pairs do, a label's share is a mean over many partners and far from 0 or 1 at the
usual rates; there the prior falls as 1 / (1 + rho / 10 mu)^2 on top, which ties rho to the rate. The prior
of mu is Beta(1/2, 1/2) (Jeffreys). The likelihood is summed over a grid of both.

The model of pairs: label i has an effect e_i ~ N(0, tau^2), and a pair of images of the labels i and j has
the event with the odds exp(c + e_i + e_j). Half of what makes one rate of pairs differ from the next is thus
seen in the labels' own shares: x_i of n_i pairs of label i have the event, with the odds exp(eta + e_i),
which tells how likely each tau is. The prior of tau is half normal with a scale of 0.7.

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

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.guarantees import safety_line
from vicinal.calibration.rates.label_counts import LabelCounts

_CONFIDENCE = 0.95
_N_RATIO_DRAWS = 20_000
# Correlation within labels beyond which their rates follow no beta distribution closely enough.
_MOST_ALIKE = 0.4


@dataclass(frozen=True)
class RateInterval:
    """A rate with its interval."""

    rate: float  # Share of the trials with the event
    low: float  # Lower end for the rate of all labels of this kind
    high: float  # Upper end
    confidence: float  # Share of such intervals that hold the true rate

    def widened(self, effect: float) -> RateInterval:
        """The interval for a variance that is so many times as large, on the scale of arcsin sqrt(rate)."""
        angle, *wide = np.arcsin(np.sqrt([self.rate, self.low, self.high]))
        low, high = angle + np.sqrt(effect) * (np.array(wide) - angle)
        ends = np.sin(max(low, 0.0)) ** 2, np.sin(min(high, np.pi / 2.0)) ** 2
        return replace(self, low=float(ends[0]), high=float(ends[1]))


def rate_interval(counts: LabelCounts, *, confidence: float = _CONFIDENCE) -> RateInterval:
    """Interval of a rate, for labels like those that were counted, at a fixed threshold or one that was
    chosen on these trials; a share `confidence` of such intervals holds the true rate.
    """
    tails = _tails(confidence)
    if counts.labels_per_trial == 1:
        posterior = rate_posterior(counts)
        low, high = posterior.quantiles(tails)
        # Of labels that have the event always or never, a few may be all that is unlike the rest; where none
        # has it, nothing tells.
        if posterior.correlation > _MOST_ALIKE or counts.n_events in (0, counts.n_trials):
            ends = safety_line(counts, confidence=confidence)
            low, high = min(low, ends[0]), max(high, ends[1])
    elif counts.n_labels > 2:
        low, high = _pair_quantiles(counts, tails)
    else:
        # One pair of labels says nothing of how much pairs differ.
        low, high = 0.0, 1.0
    return _around(counts.rate, low, high, confidence)


def ratio_interval(counts: LabelCounts) -> RateInterval:
    """Interval of a rate whose trials are outcomes too, such as the returned matches of a precision.

    The variance of the ratio sum x_i / sum n_i over labels, by linearization, says how many independent
    trials it is worth. That is itself known no better than a chi-squared variable with L - 1 degrees of
    freedom. The interval is that of Jeffreys for so many trials (Korn and Graubard, 1998, with draws in
    place of their t quantiles). Each trial has one label.
    """
    rng = np.random.default_rng(0)
    rate, freedom = counts.rate, max(1.0, counts.effective_labels - 1.0)
    residuals = counts.events - rate * counts.trials
    variance = (residuals**2).sum() * (1.0 + 1.0 / freedom) / counts.n_trials**2
    # Where no label differs from another, each stands for one trial.
    worth = rate * (1.0 - rate) / variance if variance > 0.0 else counts.effective_labels
    drawn = np.minimum(worth * rng.chisquare(freedom, _N_RATIO_DRAWS) / freedom, counts.n_trials)
    rates = rng.beta(rate * drawn + 0.5, (1.0 - rate) * drawn + 0.5)
    low, high = np.quantile(rates, _tails(_CONFIDENCE))
    return _around(rate, low, high, _CONFIDENCE)


def _tails(confidence: float) -> list[float]:
    if not 0.0 < confidence < 1.0:
        raise CalibrationError(f"confidence is {confidence}, expected a share between 0 and 1")
    return [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]


def _around(rate: float, low: float, high: float, confidence: float) -> RateInterval:
    return RateInterval(rate, float(min(low, rate)), float(max(high, rate)), confidence)


_TAU_SCALE = 0.7
_TAU = np.concatenate([[0.03], np.geomspace(0.1, 2.5, 20)])
_TAU_LOG_PRIOR = np.log(np.gradient(_TAU)) - 0.5 * (_TAU / _TAU_SCALE) ** 2
_N_ODDS = 201
_LARGEST_PAIR_LOGIT = 25.0
# Steps of a search, and of a sum over the posterior of eta, in units of its standard error.
_ZOOM = np.linspace(-1.0, 1.0, 13)
_AROUND = np.linspace(-4.0, 4.0, 17)
# Even in probability.
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 400) for i in range(400)])
_Z = np.linspace(-5.0, 5.0, 81)
_DENSITY = np.exp(-0.5 * _Z**2) / np.exp(-0.5 * _Z**2).sum()


def _pair_quantiles(counts: LabelCounts, shares: list[float]) -> Floats:
    """Quantiles of the rate of all pairs of labels like these, at least three with two labels a trial."""
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
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(found, -_LARGEST_PAIR_LOGIT, _LARGEST_PAIR_LOGIT))))


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
    weights = np.exp(found + _TAU_LOG_PRIOR - (found + _TAU_LOG_PRIOR).max())
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
    low, high = np.full(len(_TAU), -_LARGEST_PAIR_LOGIT - 5.0), np.full(len(_TAU), _LARGEST_PAIR_LOGIT)
    for _ in range(40):
        middle = (low + high) / 2.0
        is_above = _rates_of(middle) @ _DENSITY > rate
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    rates = _rates_of(low)
    return np.asarray((rates**2 @ _DENSITY) / (rates @ _DENSITY) ** 2 - 1.0)


def _rates_of(centers: Floats) -> Floats:
    """(T, Z) rates of labels around the center of each tau."""
    return np.asarray(1.0 / (1.0 + np.exp(-centers[:, None] - _TAU[:, None] * _Z)))


# Cells of rho: even in its logarithm below 0.05, where the rates of pairs live, and even above.
_SMALL = np.geomspace(1e-7, 0.05, 25)
_LARGE = np.linspace(0.05, 1.0, 31)
_RHO = np.concatenate([[5e-8], np.sqrt(_SMALL[1:] * _SMALL[:-1]), (_LARGE[1:] + _LARGE[:-1]) / 2.0])[:, None]
_EDGES = np.concatenate([[0.0], _SMALL, _LARGE[1:]])
# Prior mass of the cells: differences of the distribution function 1 - (1 - rho)^2 of Beta(1, 2).
_LOG_PRIOR = np.log(np.diff(1.0 - (1.0 - _EDGES) ** 2))[:, None]
_PAIR_SCALE = 10.0
# Effects of two labels multiply in the tail of a distribution, beyond what the model of sums says.
_TAIL_ALLOWANCE = 1.3
# Steps of the logit of mu around that of the measured rate, in units of its standard error.
_STEPS = np.linspace(-4.5, 4.5, 61)
_LARGEST_STEP = 1.2
_EVERY = 11
_LARGEST_LOGIT = 16.0


@dataclass(frozen=True)
class RatePosterior:
    """Joint posterior of the rate of all labels and of how much labels differ."""

    rates: Floats  # (D, S) values of mu, ascending in each row
    correlations: Floats  # (D, 1) value of rho of each row
    weights: Floats  # (D, S) posterior probabilities; their sum is 1

    @property
    def correlation(self) -> float:
        """Posterior mean of rho."""
        return float((self.weights.sum(axis=1) * self.correlations[:, 0]).sum())

    def quantiles(self, shares: list[float]) -> Floats:
        """Quantiles of mu."""
        at, below = self._distribution
        return np.interp(shares, below, at)

    def share_below(self, rates: npt.ArrayLike) -> Floats:
        """(...,) probability that mu is at most (...,) rates."""
        at, below = self._distribution
        asked = np.asarray(rates, dtype=np.float64)
        return np.asarray(np.interp(asked, at, below, left=0.0, right=1.0))

    @cached_property
    def _distribution(self) -> tuple[Floats, Floats]:
        """Rising values of mu, and the probability that it is at most each."""
        # Rows share most of their values or lie between those of others: some of all are enough.
        at = np.sort(self.rates, axis=None)[::_EVERY]
        below = np.zeros_like(at)
        for rates, weights in zip(self.rates, self.weights, strict=True):
            # Each value stands for what lies around it: half of its weight is below.
            below += np.interp(at, rates, weights.cumsum() - weights / 2.0, left=0.0, right=weights.sum())
        return at, below


def rate_posterior(counts: LabelCounts) -> RatePosterior:
    """Posterior of the rate that stands behind counts by label.

    Where each trial stands under two labels, every label's share also holds the effects of its partners, an
    error that all shares have in common. The likelihood of mu is flattened by as much as that makes the
    measured rate less certain; the likelihood of rho stays as it is.
    """
    rates, step = _grid(counts)
    m = 1.0 / _RHO - 1.0
    log_likelihood = (
        _log_rising(rates * m, counts.events)
        + _log_rising((1.0 - rates) * m, counts.trials - counts.events)
        - _log_rising(m, counts.trials)
    )
    # Jeffreys' prior in mu is sqrt(mu (1 - mu)) in the logit.
    log_prior = 0.5 * np.log(rates * (1.0 - rates)) + np.log(step)
    if counts.labels_per_trial == 2:
        scale = _PAIR_SCALE * np.minimum(rates, 1.0 - rates)
        log_prior = log_prior - 2.0 * np.log1p(_RHO / scale) - np.log(scale)
    joint = log_likelihood + log_prior + _LOG_PRIOR
    weights = np.exp(joint - joint.max())
    if counts.labels_per_trial == 2:
        flat = log_likelihood / _common_error(counts) + log_prior
        shape = np.exp(flat - flat.max(axis=1, keepdims=True))
        weights = weights.sum(axis=1, keepdims=True) * shape / shape.sum(axis=1, keepdims=True)
    return RatePosterior(rates, _RHO, weights / weights.sum())


def _grid(counts: LabelCounts) -> tuple[Floats, Floats]:
    """(D, S) values of mu around the measured rate, and (D, 1) the step between their logits."""
    rate = (counts.n_events + 0.5) / (counts.n_trials + 1.0)
    sizes = counts.trials.astype(np.float64)
    n = sizes.sum()
    # The variance of the rate over all trials is mu (1 - mu) sum n_i (1 + (n_i - 1) rho) / n^2.
    variance = (n + (sizes * (sizes - 1.0)).sum() * _RHO) / n**2
    if counts.labels_per_trial == 2:
        variance *= _common_error(counts)
    step = np.minimum(np.sqrt(variance / (rate * (1.0 - rate))), _LARGEST_STEP)
    logits = np.log(rate / (1.0 - rate)) + step * _STEPS
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT))), step


def _common_error(counts: LabelCounts) -> float:
    """Variance of the mean share of L labels over that of its part in each label alone.

    Pairs of labels with effects e_i + e_j: label i's share deviates by e_i and by the mean effect of its
    partners, weighted by their trials. Over all labels the variance is that of e times (3 / L + 1 / L_e), L_e
    the effective number of labels. Between labels, shares differ by (L - 2) / (L - 1) times what effects do.
    """
    n = counts.n_labels
    return _TAIL_ALLOWANCE * (3.0 + n / counts.effective_labels) * ((n - 1) / max(1, n - 2)) ** 2


def _log_rising(start: Floats, lengths: Ints) -> Floats:
    """Sum over the lengths n of log(a (a + 1) ... (a + n - 1)), for each a > 0."""
    distinct, times = np.unique(lengths, return_counts=True)
    total = -_log_gamma(start) * times.sum()
    for length, repeated in zip(distinct.tolist(), times.tolist(), strict=True):
        total += repeated * _log_gamma(start + length)
    return total


def _log_gamma(z: Floats) -> Floats:
    """Logarithm of the gamma function for 0 < z < 1e30, by Stirling's series at z + 8."""
    shift = z.copy()
    for step in range(1, 8):
        shift *= z + step
    x = z + 8.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)))
    return np.asarray((x - 0.5) * np.log(x) - x + 0.5 * np.log(2.0 * np.pi) + series - np.log(shift))
