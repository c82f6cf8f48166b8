"""Answered pairs: what few answers, same or not, say of every threshold on the scores of many pairs.

The pairs are divided into strata by score, best first, of N_h pairs each; a person says of a few pairs that
were drawn at random from chosen strata whether both show the same thing. Which stratum is asked about next
depends on the answers alone, so that it can be left out of the likelihood.

The share p_h of same pairs falls from stratum to stratum. Its log odds are a Markov chain: mostly they begin
high and are level for a while, then fall by steps of much the same length, whose mean is unknown (Erlang's
distribution), and may be level again. A person errs with probability e, unknown and the same for all answers;
a pair that was asked about k times and called the same k_same times has the likelihood

    p (1 - e)^k_same e^(k - k_same) + (1 - p) e^k_same (1 - e)^(k - k_same)

so that pairs that are shown twice tell errors from pairs that are hard to foresee. The posterior of e, the
length and all p_h together is computed exactly on a grid (a sum over the chain forwards, draws backwards).
Each draw gives, above the border of a stratum,

    precision = sum N_h p_h / sum N_h        FAR = sum N_h (1 - p_h) / all different pairs

How often the intervals hold the truth stands in `benchmarks/results/label_session.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal.calibration.arrays import Floats, Ints, Mask
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.intervals import RateInterval
from vicinal.calibration.targets import Target

# The grid: log odds of a share, falling.
_LOG_ODDS = np.linspace(7.0, -7.0, 57)
_SHARES = 1.0 / (1.0 + np.exp(-_LOG_ODDS))
# Prior of the first stratum: the most alike pairs are almost surely the same, unless the model tells badly.
_FIRST = np.select(
    [_LOG_ODDS >= 6.0, _LOG_ODDS >= 0.0],
    [0.7 / (_LOG_ODDS >= 6.0).sum(), 0.2 / ((_LOG_ODDS >= 0.0) & (_LOG_ODDS < 6.0)).sum()],
    0.1 / (_LOG_ODDS < 0.0).sum(),
)
# Mean fall of the log odds from stratum to stratum where they fall; how even the steps are (Erlang's shape);
# and how often a fall begins and ends.
_FALLS, _SHAPE = np.array([0.2, 0.45, 1.0, 2.5]), 3
_BEGINS, _ENDS = 0.05, 0.02
_ERRORS = np.array([0.0, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 0.3])
# Prior of the error: Beta(1, 25), some 4 %.
_CAREFUL = 25.0
_N_DRAWS = 1000
_LEAST_VARIANCE = 1e-4
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairStrata:
    """Pairs by score."""

    # (H,) lowest score of each stratum, falling: the threshold that accepts it and all before it.
    lowest: Floats
    sizes: Ints  # (H,) pairs of each
    n_others: int  # Pairs beyond the strata, all of them with lower scores

    @classmethod
    def of(cls, scores: Floats, *, first: int = 8, growth: float = 2.0**0.25, n_others: int = 0) -> Self:
        """Divide pairs so that each stratum accepts about `growth` times as many; equal scores share one."""
        if not len(scores):
            raise CalibrationError("there are no pairs to ask about: the gallery has fewer than two images")
        falling = -np.sort(-scores)
        n_steps = max(0, int(np.ceil(np.log(max(len(scores) / first, 1.0)) / np.log(growth))))
        wanted = np.minimum(np.ceil(first * growth ** np.arange(n_steps + 1)), len(scores)).astype(int)
        lowest = np.unique(falling[wanted - 1])[::-1]
        accepted = np.searchsorted(-falling, -lowest, side="right")
        return cls(lowest, np.diff(accepted, prepend=0), n_others)

    def stratum(self, scores: Floats) -> Ints:
        """(n,) number of each score's stratum."""
        return np.asarray(np.searchsorted(-self.lowest, -scores, side="left"))


@dataclass(frozen=True)
class PairAnswers:
    """Answers of a person."""

    strata: Ints  # (m,) stratum of each pair that was answered
    same: Ints  # (m,) how often it was called the same
    different: Ints  # (m,) how often it was not


class AnsweredPairs:
    """Posterior of the share of same pairs in every stratum, (D, H) draws, and of a person's error rate."""

    def __init__(self, strata: PairStrata, answers: PairAnswers, *, seed: int = 0) -> None:
        self.strata = strata
        rng = np.random.default_rng(seed)
        likelihood = _likelihood(answers, len(strata.sizes))
        self.errors, self.shares = _draw(likelihood, rng)
        # These very pairs are meant, and not others like them: where almost all are the same, all may be.
        self._same = rng.binomial(strata.sizes, self.shares)

    def precision(self) -> Floats:
        """(D, H) draws of the share of same pairs among all accepted ones, at each border."""
        return np.asarray(self._same.cumsum(axis=1) / self.strata.sizes.cumsum())

    def far(self) -> Floats:
        """(D, H) draws of the share of different pairs that are accepted, at each border; 0 without any."""
        different = (self.strata.sizes - self._same).cumsum(axis=1)
        return np.asarray(different / np.maximum(different[:, -1:] + self.strata.n_others, 1))

    def rate(self, target: Target) -> Floats:
        """(D, H) draws of the rate that a target is about, at each border."""
        if target.rate == "precision":
            return self.precision()
        if target.rate == "far":
            return self.far()
        raise CalibrationError(f"answers about pairs say nothing of {target}: name precision=95% or far=0.1%")

    def border(self, target: Target) -> int | None:
        """The last border at which the target holds in the mean; None where it holds at none."""
        holds = np.flatnonzero(_holds(self.rate(target).mean(axis=0), target))
        return int(holds[-1]) if len(holds) else None

    def interval(self, target: Target, border: int) -> RateInterval:
        """The rate that a target is about, at a border: its mean and its shortest 95 % interval."""
        return _interval(self.rate(target)[:, border])

    def _borders(self, target: Target) -> Ints:
        """(D,) the last border at which the target holds, draw by draw; the first where it holds at none."""
        holds = _holds(self.rate(target), target)
        from_the_end = holds[:, ::-1].argmax(axis=1)
        return np.where(holds.any(axis=1), holds.shape[1] - 1 - from_the_end, 0)

    def error_interval(self) -> RateInterval:
        """Rate at which the person errs: the mean and the shortest 95 % interval."""
        return _interval(self.errors)

    def spread(self, target: Target) -> float:
        """Accepted pairs at the 90 % quantile of the last border at which a target holds, by those at the
        10 % quantile: how far the places lie apart at which it may be met, at least 1.
        """
        accepted = self.strata.sizes.cumsum()[self._borders(target)]
        low, high = np.quantile(accepted, [0.1, 0.9])
        return float(high / low)

    def next_stratum(self, target: Target, n_asked: Ints, n_left: Ints, rng: np.random.Generator) -> int:
        """The stratum to ask about next.

        One draw of the posterior says where the target is met; of the strata accepted there the one is taken
        whose answers are fewest beside what Neyman's rule gives it, N_h sqrt(p_h (1 - p_h)). Borders that may
        be right are so explored as often as they may (Thompson, 1933).

        (H,) pairs of each stratum were asked about, answered or not yet, and (H,) are left, one at least.
        """
        last = int(rng.choice(self._borders(target)))
        # The stratum beyond the border decides whether it could lie further.
        usable = np.flatnonzero((n_left > 0) & (np.arange(len(n_left)) <= last + 1))
        if not len(usable):
            usable = np.flatnonzero(n_left > 0)[:1]
        variances = (self.shares * (1.0 - self.shares)).mean(axis=0)
        wanted = self.strata.sizes * np.sqrt(np.maximum(variances, _LEAST_VARIANCE))
        return int(usable[np.argmax(wanted[usable] / (n_asked[usable] + 1.0))])


def _holds(rates: Floats, target: Target) -> Mask:
    return rates >= target.value if target.rate == "precision" else rates <= target.value


def _interval(draws: Floats) -> RateInterval:
    """The shortest that holds so much of the draws: a precision is often near 1, and may well be 1."""
    ordered = np.sort(draws)
    n_inside = int(np.ceil(_CONFIDENCE * len(ordered)))
    lengths = ordered[n_inside - 1 :] - ordered[: len(ordered) - n_inside + 1]
    start = int(np.argmin(lengths))
    return RateInterval(
        float(draws.mean()), float(ordered[start]), float(ordered[start + n_inside - 1]), _CONFIDENCE
    )


def _likelihood(answers: PairAnswers, n_strata: int) -> Floats:
    """(E, H, G) logarithm of the likelihood of all answers of a stratum, by error and share of same pairs."""
    patterns, own = np.unique(np.stack([answers.same, answers.different]), axis=1, return_inverse=True)
    counts = np.zeros((n_strata, patterns.shape[1]))
    np.add.at(counts, (answers.strata, own.reshape(-1)), 1.0)
    same, different = patterns[:, :, None].astype(float)
    e = np.maximum(_ERRORS, 1e-6)
    if_same = (1.0 - e) ** same * e**different
    if_different = e**same * (1.0 - e) ** different
    each = if_same[:, :, None] * _SHARES + if_different[:, :, None] * (1.0 - _SHARES)
    return np.einsum("hp,peg->ehg", counts, np.log(np.maximum(each, 1e-300)))


def _falls(mean: float) -> Floats:
    """(G, G) probability of the share in the next stratum: its log odds fall by an Erlang step."""
    steps = np.arange(len(_LOG_ODDS))
    edges = np.append(0.0, steps + 0.5) * (_LOG_ODDS[0] - _LOG_ODDS[1]) * _SHAPE / mean
    terms = np.cumprod(np.stack([np.ones_like(edges), *(edges / k for k in range(1, _SHAPE))]), axis=0)
    probability = np.diff(1.0 - np.exp(-edges) * terms.sum(axis=0))
    rows = np.zeros((len(steps), len(steps)))
    for start in range(len(steps)):
        rows[start, start:] = probability[: len(steps) - start]
        # What would fall lower stays at the end.
        rows[start, -1] += 1.0 - rows[start].sum()
    return rows


def _transitions(fall: float) -> Floats:
    """(2 G, 2 G) the same of a chain that is level in its first half, and falls in its second."""
    level, falling = np.eye(len(_LOG_ODDS)), _falls(fall)
    return np.block([[(1.0 - _BEGINS) * level, _BEGINS * falling], [_ENDS * level, (1.0 - _ENDS) * falling]])


def _draw(likelihood: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draws of the error and of all shares; see `_likelihood`."""
    n_errors, n_strata, n_shares = likelihood.shape
    peaks = likelihood.max(axis=2, keepdims=True)
    weights = np.tile(np.exp(likelihood - peaks), 2)
    transitions = np.stack([_transitions(fall) for fall in _FALLS])
    forward = np.empty((len(_FALLS), n_errors, n_strata, 2 * n_shares))
    totals = np.tile(peaks[:, :, 0].sum(axis=1), (len(_FALLS), 1))
    before = np.tile(np.tile(_FIRST, 2) / (2.0 * _FIRST.sum()), (len(_FALLS), n_errors, 1))
    for h in range(n_strata):
        reached = (before if h == 0 else before @ transitions) * weights[:, h]
        sums = reached.sum(axis=2)
        totals += np.log(sums)
        before = forward[:, :, h] = reached / sums[:, :, None]
    prior = (1.0 - _ERRORS) ** (_CAREFUL - 1.0) * np.gradient(_ERRORS)
    posterior = np.exp(totals - totals.max()) * prior
    cells = rng.choice(posterior.size, _N_DRAWS, p=(posterior / posterior.sum()).ravel())
    fall, error = np.unravel_index(cells, posterior.shape)
    path = np.empty((_N_DRAWS, n_strata), dtype=int)
    path[:, -1] = _pick(forward[fall, error, -1], rng)
    for h in range(n_strata - 2, -1, -1):
        path[:, h] = _pick(forward[fall, error, h] * transitions[fall, :, path[:, h + 1]], rng)
    return _ERRORS[error], _SHARES[path % n_shares]


def _pick(weights: Floats, rng: np.random.Generator) -> Ints:
    """(D,) a column of each row, as probable as its weight."""
    sums = weights.cumsum(axis=1)
    return np.asarray((sums < rng.random(len(sums))[:, None] * sums[:, -1:]).sum(axis=1))
