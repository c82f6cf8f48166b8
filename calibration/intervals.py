"""Intervals of error rates: what unseen labels will show.

Trials of one label are alike, so that a rate rests on its labels and not on its trials. A percentile
bootstrap over labels is far too short with few of them: with 5 labels its 95 % interval of a rate of 5 %
covers the truth in 60 to 80 % of all cases (`benchmarks/interval_coverage.py`). The intervals here come
from draws of a model instead, a parametric bootstrap over labels:

1. rho, the dispersion of the labels, from its posterior (`calibration.dispersion`);
2. the rate, from Beta(r n_e + 1/2, (1 - r) n_e + 1/2), Jeffreys' interval for n_e independent trials, where
   n_e is the number that r = events / trials is worth at this rho. So the rate stays that over all
   trials, in which large labels weigh more, as they do in the figure that is reported;
3. for a prediction, the rates of m further labels and the events in their trials.

Where the threshold was chosen on the same trials, so that at most k of N have the event, the (k + 1)-th score
bounds it. The true rate at the (k + 1)-th of N independent scores is Beta(k + 1, N - k): half a trial
more than for a fixed threshold, which is how r = (k + 1/2) / N enters above. Nothing else changes: the
true rate at the chosen threshold is below u exactly when the threshold with the true rate u shows at most
k events.

Taken for granted: the labels are a sample of those to come, their rates follow a beta distribution closely
enough, and a label's number of trials has nothing to do with its rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration.dispersion import DISPERSIONS, dispersion_posterior, effective_trials
from calibration.errors import CalibrationError
from calibration.label_counts import LabelCounts

__all__ = ["RateInterval", "prediction_interval", "rate_interval"]

Floats = npt.NDArray[np.float64]
_N_DRAWS = 10_000
# A prediction draws every label anew: fewer draws do, as its ends lie coarser.
_N_PREDICTED = 4_000
# Away from 0 and 1, where a beta distribution has no parameters.
_SMALLEST = 1e-12


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


def rate_interval(
    counts: LabelCounts, *, is_chosen: bool = False, confidence: float = 0.95, seed: int = 0
) -> RateInterval:
    """Interval of a rate, for labels like those that were counted.

    Args:
        counts: Events and trials by label.
        is_chosen: Whether the threshold was chosen on these trials, so that this rate holds a target.
        confidence: Share of such intervals that hold the true rate, in (0, 1).
        seed: Seed of the draws.

    Raises:
        CalibrationError: The confidence is out of range.
    """
    _, rates = _draw(counts, np.random.default_rng(seed), is_chosen)
    return _interval(counts.rate, rates, confidence)


def prediction_interval(
    counts: LabelCounts,
    n_labels: int,
    *,
    is_chosen: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> RateInterval:
    """Interval of the rate that a further set of labels will show, each with as many trials as a present one.

    Args:
        counts: Events and trials by label.
        n_labels: Number m of further labels.
        is_chosen: Whether the threshold was chosen on these trials, so that this rate holds a target.
        confidence: Share of such intervals that hold the rate which is shown, in (0, 1).
        seed: Seed of the draws.

    Raises:
        CalibrationError: A parameter is out of range.
    """
    if n_labels < 1:
        raise CalibrationError(f"n_labels is {n_labels}, a prediction needs at least 1")
    rng = np.random.default_rng(seed)
    rho, rates = _draw(counts, rng, is_chosen)
    shown = _further_labels(counts, n_labels, rng, rho[:_N_PREDICTED], rates[:_N_PREDICTED])
    return _interval(counts.rate, shown, confidence)


def _draw(counts: LabelCounts, rng: np.random.Generator, is_chosen: bool) -> tuple[Floats, Floats]:
    """Draws of the dispersion and of the rate."""
    cells = rng.choice(len(DISPERSIONS), _N_DRAWS, p=dispersion_posterior(counts))
    rho = DISPERSIONS[cells]
    worth = effective_trials(counts, DISPERSIONS)[cells]
    bounded = counts.n_events + (0.5 if is_chosen else 0.0)
    share = min(1.0, bounded / counts.n_trials)
    rates = rng.beta(share * worth + 0.5, (1.0 - share) * worth + 0.5)
    return rho, np.clip(rates, _SMALLEST, 1.0 - _SMALLEST)


def _further_labels(
    counts: LabelCounts, n_labels: int, rng: np.random.Generator, rho: Floats, rates: Floats
) -> Floats:
    """(B,) rate over the trials of n_labels further labels, one set for each draw."""
    m = 1.0 / rho - 1.0
    sizes = rng.choice(counts.trials, (len(rates), n_labels))
    own = rng.beta((rates * m)[:, None], ((1.0 - rates) * m)[:, None], sizes.shape)
    shown = rng.binomial(sizes, own).sum(axis=1) / sizes.sum(axis=1)
    # Where a trial stands under two labels, the effects of both add up in its rate.
    return np.clip(rates + counts.labels_per_trial * (shown - rates), 0.0, 1.0)


def _interval(rate: float, draws: Floats, confidence: float) -> RateInterval:
    if not 0.0 < confidence < 1.0:
        raise CalibrationError(f"confidence is {confidence}, expected a share between 0 and 1")
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return RateInterval(rate, float(min(low, rate)), float(max(high, rate)), confidence)
