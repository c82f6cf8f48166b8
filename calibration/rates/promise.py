"""Promise: whether labels that were measured later agree with the range that a calibration promised.

A calibration promises a rate with a 95 % range for labels like its own. Later labels show a rate of their
own, which they leave as uncertain as their number says (`rate_posterior`). Both are uncertain, so that one
is compared with the other and not with a fixed number: the promise is taken for a distribution that has 95 %
of its mass in the promised range, mu for the promised rate, mu' for that of the later labels, and

    p = P(mu' <= mu)

is how well they agree that it has not become worse. The promise is broken where p is below 0.6 times the
error rate *and* the measured rate lies beyond the promised range: nobody is told that 50 of 100 break a
promise of 48 to 74. The factor makes up for few labels that differ much, of which the posterior is a little
too sure. The promise is kept where the measured rate is not beyond the range and a plainly worse rate, with
three times the odds of the promised end, is ruled out at the error rate. Otherwise there are too few labels
to tell.

The distribution of the promise is normal on the scale arcsin(sqrt(mu)), with a spread of its own on each side
of the rate, because ranges reach further up than down where rates are small. How often it errs, and
what it finds, is measured by `benchmarks/quality/promise_check.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Floats
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.intervals import RateInterval, rate_posterior
from vicinal.calibration.rates.label_counts import LabelCounts

PromiseVerdict = Literal["better", "held", "unclear", "broken"]

# The ends of a promised range leave 2.5 % on each side.
_END = NormalDist().inv_cdf(0.975)
# Even in probability: enough for the mean of a smooth function.
_STEPS = np.array([NormalDist().inv_cdf((i + 0.5) / 400) for i in range(400)])
# Where p has to lie, by the error rate.
_CAUTION = 0.6
# A rate with so many times the odds of the promised end is plainly worse.
_PLAINLY_WORSE = 3.0
# As many times the labels that were measured are looked at to say how many would be enough.
_MOST_TIMES = 64


@dataclass(frozen=True)
class PromiseTest:
    """Verdict of later labels on a promised rate."""

    measured: RateInterval  # Their rate, with the interval that leaves the error rate on each side
    p_not_worse: float  # Probability that their rate is not above the promised one
    verdict: PromiseVerdict  # `broken`, `held`, `better` (also held) or `unclear`: too few labels to tell
    # About how many labels more would tell, if they are like these; None where it can be told now, or where
    # even 64 times as many would not be enough.
    more_labels: int | None


def check_promise(
    counts: LabelCounts, promised: RateInterval, *, error_rate: float = 0.025, counts_more: bool = True
) -> PromiseTest:
    """Test a promised rate with its 95 % range on later labels; a lower rate than promised breaks nothing.

    A kept promise is called broken as often as the error rate says; whoever tests several rates of one
    promise shares it out among them. With `counts_more`, the number of labels that would tell is looked for.
    """
    if not 0.0 < error_rate < 0.5:
        raise CalibrationError(f"error_rate is {error_rate}, expected a share between 0 and 0.5")
    found = _test(counts, promised, error_rate)
    if found.verdict != "unclear" or not counts_more:
        return found
    more = _more_labels(counts, promised, error_rate)
    return PromiseTest(found.measured, found.p_not_worse, found.verdict, more)


def check_promise_by_interval(
    found: RateInterval, promised: RateInterval, *, n: int, error_rate: float = 0.025
) -> PromiseTest:
    """Test a promised rate on a later one that stands with its own 95 % interval, such as that of answered
    searches, as on labels; `more_labels` is then how many more of the n answers behind it would tell.
    """

    def tested(times: int) -> PromiseTest:
        drawn = np.sort(_promised_rates(found.widened(1.0 / times)))
        ends = np.quantile(drawn, [error_rate, 1.0 - error_rate])

        def share_below(rates: npt.ArrayLike) -> Floats:
            return np.searchsorted(drawn, rates, side="right") / len(drawn)

        return _judged(found.rate, ends, share_below, promised, error_rate)

    test = tested(1)
    if test.verdict != "unclear":
        return test
    enough = next((k for k in (2, 3, 4, 6, 8, 12, 16, 32, 64) if tested(k).verdict != "unclear"), None)
    return replace(test, more_labels=None if enough is None else (enough - 1) * n)


def _test(counts: LabelCounts, promised: RateInterval, error_rate: float) -> PromiseTest:
    posterior = rate_posterior(counts)
    ends = posterior.quantiles([error_rate, 1.0 - error_rate])
    return _judged(counts.rate, ends, posterior.share_below, promised, error_rate)


def _judged(
    rate: float,
    ends: Floats,
    share_below: Callable[[npt.ArrayLike], Floats],
    promised: RateInterval,
    error_rate: float,
) -> PromiseTest:
    low, high = map(float, ends)
    measured = RateInterval(rate, min(low, rate), max(high, rate), 1.0 - 2.0 * error_rate)
    p = float(share_below(_promised_rates(promised)).mean())
    plain = _with_odds(promised.high, _PLAINLY_WORSE)
    if p < _CAUTION * error_rate and rate > promised.high:
        verdict: PromiseVerdict = "broken"
    elif 1.0 - p < _CAUTION * error_rate and rate < promised.low:
        verdict = "better"
    elif rate <= promised.high and float(share_below(plain)) >= 1.0 - error_rate:
        verdict = "held"
    else:
        verdict = "unclear"
    return PromiseTest(measured, p, verdict, None)


def _more_labels(counts: LabelCounts, promised: RateInterval, error_rate: float) -> int | None:
    """Further labels like these until it can be told: the same labels over and over."""

    def is_told(n: int) -> bool:
        repeated = LabelCounts(np.resize(counts.events, n), np.resize(counts.trials, n))
        return _test(repeated, promised, error_rate).verdict != "unclear"

    least, enough = counts.n_labels, 2 * counts.n_labels
    while not is_told(enough):
        least, enough = enough, 2 * enough
        if enough > _MOST_TIMES * counts.n_labels:
            return None
    while enough - least > max(1, least // 10):
        middle = (least + enough) // 2
        least, enough = (least, middle) if is_told(middle) else (middle, enough)
    return enough - counts.n_labels


def _promised_rates(promised: RateInterval) -> Floats:
    """(400,) rates, even in probability, of the distribution that a promise stands for."""
    low, rate, high = np.arcsin(np.sqrt([promised.low, promised.rate, promised.high]))
    spread = np.where(_STEPS < 0.0, rate - low, high - rate) / _END
    return np.asarray(np.sin(np.clip(rate + spread * _STEPS, 0.0, np.pi / 2.0)) ** 2)


def _with_odds(rate: float, times: float) -> float:
    """The rate with so many times the odds."""
    return times * rate / (1.0 - rate + times * rate)
