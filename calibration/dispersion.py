"""How differently labels fare: the posterior of the dispersion of a rate over labels.

Model: label i has its own rate p_i ~ Beta(mu M, (1 - mu) M), and x_i of its n_i trials have the event,
x_i ~ Binomial(n_i, p_i). Two trials of one label then agree with correlation rho = 1 / (M + 1): rho near 0
means that labels are all alike, rho near 1 that each label has the event always or never.

The prior of rho is Beta(1, 2), its mean 1/3: with few labels the data hardly tell alike labels from
unlike ones, and then the unlike must be reckoned with, or intervals come out far too short. The prior of
mu is Beta(1/2, 1/2) (Jeffreys); mu is integrated out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibration.label_counts import LabelCounts

__all__ = ["DISPERSIONS", "dispersion_posterior", "effective_trials"]

Floats = npt.NDArray[np.float64]

# Cells of rho: even in its logarithm below 0.05, where the rates of pairs live, and even above.
_SMALL = np.geomspace(1e-7, 0.05, 25)
_LARGE = np.linspace(0.05, 1.0, 31)
_EDGES = np.concatenate([[0.0], _SMALL, _LARGE[1:]])
DISPERSIONS: Floats = np.concatenate(
    [[5e-8], np.sqrt(_SMALL[1:] * _SMALL[:-1]), (_LARGE[1:] + _LARGE[:-1]) / 2.0]
)
# Prior mass of the cells: differences of the distribution function 1 - (1 - rho)^2 of Beta(1, 2).
_PRIOR = np.diff(1.0 - (1.0 - _EDGES) ** 2)
# Standard normal steps over which mu is integrated.
_STEPS = np.linspace(-4.0, 4.0, 17)
_LARGEST_LOGIT = 14.0


def dispersion_posterior(counts: LabelCounts) -> Floats:
    """(D,) posterior probability of each of `DISPERSIONS`.

    Args:
        counts: Events and trials by label.
    """
    means, log_weights = _means(counts)
    m = 1.0 / DISPERSIONS[:, None] - 1.0
    alpha, beta = means * m, (1.0 - means) * m
    log_likelihood = (
        _log_rising(alpha, counts.events)
        + _log_rising(beta, counts.trials - counts.events)
        - _log_rising(m, counts.trials)
    )
    joint = log_likelihood + log_weights
    weights = np.exp(joint - joint.max()).sum(axis=1) * _PRIOR
    return np.asarray(weights / weights.sum())


def effective_trials(counts: LabelCounts, rho: Floats) -> Floats:
    """How many independent trials would tell as much about the rate, for each dispersion.

    The rate over N trials has the variance mu (1 - mu) (N + sum n_i (n_i - 1) rho) / N^2. A trial with two
    labels counts in the n_i of both, so that the sum is over the effects of both (the projection of
    Hoeffding, 1948). There each label's share also holds the effects of the others, which makes shares differ
    less than effects do, by (L - 2) / (L - 1); that is given back, as the jackknife does.

    Args:
        counts: Events and trials by label.
        rho: (D,) in (0, 1).
    """
    sizes = counts.trials.astype(np.float64)
    clustered = (sizes * (sizes - 1.0)).sum() * rho
    if counts.labels_per_trial == 2:
        clustered *= ((counts.n_labels - 1) / max(1, counts.n_labels - 2)) ** 2
    return counts.n_trials**2 / (counts.n_trials + clustered)


def _means(counts: LabelCounts) -> tuple[Floats, Floats]:
    """(D, S) means to integrate over for each dispersion, and the logarithm of prior times step."""
    rate = (counts.n_events + 0.5) / (counts.n_trials + 1.0)
    spread = 1.0 / np.sqrt(rate * (1.0 - rate) * effective_trials(counts, DISPERSIONS))[:, None]
    logits = np.clip(np.log(rate / (1.0 - rate)) + spread * _STEPS, -_LARGEST_LOGIT, _LARGEST_LOGIT)
    means = 1.0 / (1.0 + np.exp(-logits))
    # Jeffreys' prior in mu is sqrt(mu (1 - mu)) in the logit.
    return means, 0.5 * np.log(means * (1.0 - means)) + np.log(spread)


def _log_rising(start: Floats, lengths: npt.NDArray[np.int64]) -> Floats:
    """Sum over the lengths n of log(a (a + 1) ... (a + n - 1)), for each a > 0."""
    distinct, times = np.unique(lengths, return_counts=True)
    total = np.zeros_like(start)
    for length, repeated in zip(distinct.tolist(), times.tolist(), strict=True):
        if length:
            total += repeated * (_log_gamma(start + length) - _log_gamma(start))
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
