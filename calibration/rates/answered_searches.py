"""Answered searches: which of the searches that a service kept are asked about, and what the answers say.

The only queries that are like tomorrow's are yesterday's. A person says of a drawn search whether the gallery
has what it shows, and which label that is. The searches are divided into strata by their best score, at
quantiles and at the threshold. Half of the draws go to the strata in proportion to their sizes, half to the
three strata nearest to the threshold, where an answer tells most; within a stratum the order is random and
never changes. N_h searches of which n_h were drawn and answered weigh w = N_h / n_h each:

    FNIR(t) = sum w [known, best mate below t] / sum w [known]
    FPIR(t) = sum w [absent, best score at or above t] / sum w [absent]
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, AnyInts, Floats, Ints, Mask
from vicinal.calibration.rates.guarantees import safety_line
from vicinal.calibration.rates.intervals import RateInterval
from vicinal.calibration.rates.label_counts import LabelCounts

_N_STRATA = 8
_N_NEAREST = 3


@dataclass(frozen=True)
class SearchStrata:
    """Kept searches by their best score.

    Attributes:
        edges: (H - 1,) rising; a stratum begins at its edge.
        sizes: (H,) searches of each, at least one.
        means: (H,) mean score of each.
    """

    edges: Floats
    sizes: Ints
    means: Floats

    @classmethod
    def of(cls, scores: Floats, threshold: float | None) -> Self:
        """Divide (n,) best scores, n >= 1, at quantiles; the nearest gives way to the threshold, if any."""
        edges = np.quantile(scores, np.arange(1, _N_STRATA) / _N_STRATA)
        if threshold is not None and scores.min() < threshold <= scores.max():
            edges[np.argmin(np.abs(edges - threshold))] = threshold
        # An edge at the lowest score would leave nothing below it.
        edges = np.unique(edges[edges > scores.min()])
        own = np.searchsorted(edges, scores, side="right")
        edges = edges[np.isin(np.arange(1, len(edges) + 1), own)]
        own = np.searchsorted(edges, scores, side="right")
        sizes = np.bincount(own, minlength=len(edges) + 1)
        return cls(edges, sizes, np.bincount(own, scores) / sizes)

    def stratum(self, scores: Floats) -> Ints:
        """(n,) number of each score's stratum."""
        return np.asarray(np.searchsorted(self.edges, scores, side="right"))

    def shares(self, threshold: float | None) -> Floats:
        """(H,) share of the draws that each stratum gets."""
        even = self.sizes / self.sizes.sum()
        if threshold is None:
            return np.asarray(even)
        nearest = np.argsort(np.abs(self.means - threshold), kind="stable")[:_N_NEAREST]
        near = np.zeros(len(even))
        near[nearest] = 1.0 / len(nearest)
        return np.asarray((even + near) / 2.0)


def next_draws(
    scores: Floats,
    threshold: float | None,
    order: npt.ArrayLike,
    drawn: Mask,
    *,
    n: int = 1,
    in_sample: Mask | None = None,
    visits: AnyArray | None = None,
) -> Ints:
    """Places of the kept searches to ask about next, at most n, the first to be asked about first.

    It is told by the arguments alone. A search that was handed out counts as drawn, answered or not: an
    answer is used for rates if its search was drawn, whenever that was, and never because somebody chose to
    give it.

    Args:
        scores: (m,) best score of each kept search, 0 for one that found nothing.
        threshold: The threshold in force, or the one that the bundle begins with; None without either.
        order: (m,) random numbers that a search keeps for good, such as a hash of its id.
        drawn: (m,) whether it was handed out before.
        n: How many are wanted.
        in_sample: (m,) whether it is in the sample of all searches; others, such as answered ones that the
            sample has no room for, are counted where they were drawn, and not drawn. All when None.
        visits: (m,) what was searched for at one time by one sender; one search of each is asked about.
            Empty texts and None are visits of their own.
    """
    sampled = np.ones(len(scores), bool) if in_sample is None else in_sample
    places = np.arange(len(scores))[one_a_visit(order, drawn, sampled, visits)]
    if not (sampled[places]).any():
        return np.empty(0, np.int64)
    strata = SearchStrata.of(scores[places][sampled[places]], threshold)
    own, rank = strata.stratum(scores[places]), np.asarray(order)[places]
    n_drawn = np.bincount(own[drawn[places]], minlength=len(strata.sizes))
    is_free = ~drawn[places] & sampled[places]
    waiting = [
        places[here][np.argsort(rank[here], kind="stable")].tolist()
        for here in (np.flatnonzero(is_free & (own == h)) for h in range(len(strata.sizes)))
    ]
    shares, found = strata.shares(threshold), list[int]()
    while len(found) < n and any(waiting):
        lacking = shares * (n_drawn.sum() + 1) - n_drawn
        stratum = int(np.argmax(np.where([bool(one) for one in waiting], lacking, -np.inf)))
        found.append(waiting[stratum].pop(0))
        n_drawn[stratum] += 1
    return np.array(found, dtype=np.int64)


def one_a_visit(order: npt.ArrayLike, drawn: Mask, in_sample: Mask, visits: AnyArray | None) -> Mask:
    """(m,) whether a search stands for its visit: a drawn one, else the first of the sample in order."""
    n = len(drawn)
    if visits is None:
        return np.ones(n, bool)
    names = [one or number for number, one in enumerate(visits)]
    found: dict[object, int] = {}
    for place in np.lexsort((np.asarray(order), ~in_sample, ~drawn)).tolist():
        found.setdefault(names[place], place)
    return np.isin(np.arange(n), list(found.values()))


SearchRate = Literal["fnir", "fpir"]
SEARCH_RATES: tuple[SearchRate, ...] = ("fnir", "fpir")
_N_DRAWS = 2000
_CONFIDENCE, TELLING = 0.95, 0.8
# Share of the strangers that may be unsure.
_MOST_UNSURE = 0.1
# Fewer answers with the event, or without it, do not tell how rates vary.
_FEW_EVENTS = 10
_LEAST_SHAPE = 0.2
# Prior of a person's error, Beta(1, 25): some 4 %.
_CAREFUL = 25.0
_ERRORS = np.linspace(0.0, 0.3, 121)


@dataclass(frozen=True)
class AnsweredSearches:
    """Searches that were drawn and answered, beside all that they were drawn from.

    Attributes:
        top_scores: (n,) best score of each.
        mate_scores: (n,) best score with its label, where that is known.
        is_known: (n,) whether the gallery has what it shows.
        is_absent: (n,) whether it lacks that.
        is_unsure: (n,) whether that cannot be told. Searches of none of the three, such as one that became an
            item since, are trials of no rate; they stand for the like of them in the strata.
        codes: (n,) labels as numbers; a stranger without a name has one of its own.
        sample_scores: (m,) best scores of the sample of all searches.
        threshold: The threshold that the strata have an edge at.
        n_again: Searches that were asked about twice, and answered.
        n_disagreed: Those of them that were answered differently.
        less_scores: (n,) of those that became items the best score with the label without a mate that was
            drawn; NaN for others.
    """

    top_scores: Floats
    mate_scores: Floats
    is_known: Mask
    is_absent: Mask
    is_unsure: Mask
    codes: AnyInts
    sample_scores: Floats
    threshold: float | None
    n_again: int = 0
    n_disagreed: int = 0
    less_scores: Floats | None = None

    @cached_property
    def _strata(self) -> tuple[Ints, Floats]:
        """(n,) stratum of each answer, and (H,) sizes of the strata; each has an answer."""
        strata = SearchStrata.of(self.sample_scores, self.threshold)
        own, sizes = strata.stratum(self.top_scores), strata.sizes.astype(float)
        has_answer = np.bincount(own, minlength=len(sizes)) > 0
        if not has_answer.all():
            # What nobody answered yet is taken for like what is next to it on its side of the threshold.
            answered = np.flatnonzero(has_answer)
            is_above = np.append(-np.inf, strata.edges) >= (
                np.inf if self.threshold is None else self.threshold
            )
            for stratum in np.flatnonzero(~has_answer):
                across = is_above[answered] != is_above[stratum]
                near = answered[np.lexsort((np.abs(answered - stratum), across))[0]]
                sizes[near] += sizes[stratum]
            numbers = np.cumsum(has_answer) - 1
            own, sizes = numbers[own], sizes[has_answer]
        return own, sizes

    @property
    def weights(self) -> Floats:
        """(n,) searches that each answer stands for."""
        own, sizes = self._strata
        return np.asarray((sizes / np.bincount(own, minlength=len(sizes)))[own])

    @property
    def strangers(self) -> float:
        """Share of the searches for things that the gallery lacks, of those that could be told."""
        told = self.weights * (self.is_known | self.is_absent)
        return float(told[self.is_absent].sum() / max(told.sum(), 1e-300))

    def of_rate(self, rate: SearchRate) -> Mask:
        """(n,) whether an answer is a trial of a rate: known for FNIR, absent for FPIR."""
        return self.is_known if rate == "fnir" else self.is_absent

    def events(self, rate: SearchRate, threshold: float) -> Mask:
        """(n,) whether a trial of a rate has its event at a threshold."""
        is_event = self.mate_scores < threshold if rate == "fnir" else self.top_scores >= threshold
        return np.asarray(is_event & self.of_rate(rate))

    def interval(
        self, rate: SearchRate, threshold: float, confidence: float = _CONFIDENCE
    ) -> RateInterval | None:
        """A rate with its interval; None where no answer is a trial of it.

        The ends are quantiles of a Bayesian bootstrap (`_replicates`). A search that cannot be told counts
        for the low end and against the high one. At the low end errors of the person are taken off: a
        stranger that was given a label is mostly missed, and a known thing that was called absent mostly gets
        a match, so that errors make either rate too high. Where few events stand behind an end,
        it is at least as wide as the safety line (`calibration.rates.guarantees`).
        """
        is_trial, is_event = self.of_rate(rate), self.events(rate, threshold)
        if not is_trial.any():
            return None
        drawn, errors = self._drawn
        is_up = self.top_scores >= threshold
        if rate == "fnir":
            harmless, harmful = self.is_unsure & is_up, self.is_unsure
            mistaken, mistaken_events = self.is_absent, self.is_absent & ~is_up
        else:
            harmless, harmful = self.is_unsure & ~is_up, self.is_unsure & is_up
            mistaken, mistaken_events = self.is_known, self.is_known & is_up
        events, trials = drawn @ is_event, drawn @ is_trial
        fewer = np.maximum(events - errors * (drawn @ mistaken_events), 0.0)
        others = np.maximum(trials - errors * (drawn @ mistaken), fewer) + drawn @ harmless
        more, of_all = events + drawn @ harmful, trials + drawn @ harmful
        tail = (1.0 - confidence) / 2.0
        low = float(np.quantile(fewer / np.maximum(others, 1e-300), tail))
        if rate == "fnir":
            low *= self._with_one_mate_more(threshold)
        high = float(np.quantile(more / np.maximum(of_all, 1e-300), 1.0 - tail))
        worth = self._worth_beyond(threshold)
        if is_event.sum() < _FEW_EVENTS:
            high = max(high, self._safe(is_event | harmful, is_trial | harmful, worth, confidence)[1])
        if (is_trial & ~is_event).sum() < _FEW_EVENTS:
            low = min(low, self._safe(is_event, is_trial, worth, confidence)[0])
        weights = self.weights
        found = float(weights @ is_event / (weights @ is_trial))
        return RateInterval(found, min(low, found), max(high, found), confidence)

    def unsure_from(self, rate: SearchRate, threshold: float, value: float) -> float | None:
        """The lowest score below a threshold, which the rate is held by, at which the rate cannot be told
        from a value; None without one. At most a tenth of the strangers lie between, or a single one.
        """
        scores = self.top_scores if rate == "fpir" else self.mate_scores
        tried = np.unique(scores[self.of_rate(rate) & (scores < threshold)])

        def may_hold(score: float) -> bool:
            one = self.interval(rate, float(score), TELLING)
            return one is not None and (one.low <= value if rate == "fpir" else one.high >= value)

        first = bisect.bisect_left(tried, True, key=may_hold)
        if first == len(tried):
            return None
        is_below = self.is_absent & (self.top_scores < threshold)
        order = np.flatnonzero(is_below)[np.argsort(-self.top_scores[is_below], kind="stable")]
        shares = self.weights[order].cumsum() / max(float(self.weights[self.is_absent].sum()), 1e-300)
        n_most = max(1, int((shares <= _MOST_UNSURE).sum()))
        lowest = self.top_scores[order[n_most - 1]] if n_most < len(order) else -np.inf
        return max(float(tried[first]), float(lowest))

    def _with_one_mate_more(self, threshold: float) -> float:
        """A lower end of how many times the FNIR is that of photos which see the items that searches became.

        With F(m) the misses at m mates F(m + 1) / F(m) >= F(m) / F(m - 1), by the inequality of Cauchy and
        Schwarz.
        """
        less, weights = self.less_scores, self.weights
        if less is None:
            return 1.0
        are_items, is_event = self.is_known & ~np.isnan(less), self.events("fnir", threshold)
        missed = float(weights[are_items & is_event].sum())
        if not missed:
            return 1.0
        ratio = missed / max(missed, float(weights[are_items & (less < threshold)].sum()))
        return 1.0 - missed / float(weights[is_event].sum()) * (1.0 - ratio)

    def _safe(self, is_event: Mask, is_trial: Mask, worth: float, confidence: float) -> tuple[float, float]:
        """The safety line; its one label more is `worth` as many searches as an answer where that would have
        been drawn.
        """
        counts = self._counts(is_event, is_trial)
        beside = max(worth, float(counts.trials.mean()))
        return safety_line(counts, confidence=confidence, beside=beside)

    def _worth_beyond(self, threshold: float) -> float:
        """The most searches that an answer stands for, of those with a best score from the threshold on."""
        return float(self.weights[self.top_scores >= threshold].max(initial=0.0))

    def _counts(self, is_event: Mask, is_trial: Mask) -> LabelCounts:
        _, codes = np.unique(self.codes[is_trial], return_inverse=True)
        weights = self.weights[is_trial]
        return LabelCounts(np.bincount(codes, weights * is_event[is_trial]), np.bincount(codes, weights))

    @cached_property
    def _drawn(self) -> tuple[Floats, Floats]:
        """Replicates of the weights, and of the person's errors."""
        rng = np.random.default_rng(0)
        return self._replicates(rng), self._drawn_errors(rng)

    def _replicates(self, rng: np.random.Generator) -> Floats:
        """(D, n) weights of the answers under random weights of their labels.

        In each replicate the answers of a stratum add up to its size, which is itself that of a sample: what
        the strata tell of a rate stays told. The labels' weights are gamma distributed, so that the variance
        within a stratum of n answers is that of a sample of n - 1. One answer of a stratum beside it is worth
        an answer: where all answers of a stratum say the same, the next need not.
        """
        own, sizes = self._strata
        n = np.bincount(own, minlength=len(sizes))
        shapes = np.maximum(1.0 - 2.0 / n, _LEAST_SHAPE)[own]
        _, codes, times = np.unique(self.codes, return_inverse=True, return_counts=True)
        of_labels = np.bincount(codes, shapes) / times
        labels = rng.standard_gamma(of_labels, (_N_DRAWS, len(of_labels)))[:, codes]
        totals = rng.standard_gamma(sizes, (_N_DRAWS, len(sizes)))
        found, rows = np.zeros_like(labels), np.arange(_N_DRAWS)
        for stratum, total in enumerate(totals.T):
            here, beside = own == stratum, np.flatnonzero(np.abs(own - stratum) == 1)
            guest = rng.standard_exponential(_N_DRAWS) if len(beside) else np.zeros(_N_DRAWS)
            worth = total / (labels[:, here].sum(axis=1) + guest)
            found[:, here] += labels[:, here] * worth[:, None]
            if len(beside):
                found[rows, rng.choice(beside, _N_DRAWS)] += guest * worth
        return found

    def _drawn_errors(self, rng: np.random.Generator) -> Floats:
        """(D,) draws of how often the person errs: who answers twice says the same unless one is wrong."""
        differs = 2.0 * _ERRORS * (1.0 - _ERRORS)
        chances = (1.0 - _ERRORS) ** (_CAREFUL - 1.0) * differs**self.n_disagreed
        chances *= (1.0 - differs) ** (self.n_again - self.n_disagreed)
        return np.asarray(rng.choice(_ERRORS, _N_DRAWS, p=chances / chances.sum()))
