"""Evidence of a calibration: what its rates rest on, what they let expect, how differently classes fare."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import Field

from vicinal.calibration import (
    LabelCounts,
    OpisFloor,
    Target,
    TopScoreCounts,
    Trials,
    UnreachableTargetError,
    choose_threshold,
    label_counts,
    rate_interval,
    ratio_interval,
)
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.consistency.opis import ClassUtilities, NoUtilityError, class_utilities
from vicinal.calibration.consistency.opis_floor import MatePairs, PairImages, pair_opis_floor
from vicinal.calibration.frozen import Frozen, Recorded
from vicinal.calibration.rates.answered_searches import SEARCH_RATES, AnsweredSearches, SearchRate
from vicinal.calibration.rates.intervals import RateInterval
from vicinal.calibration.rates.label_counts import RateName, impostor_label_effect
from vicinal.calibration.targets import highest_threshold, lowest_threshold, threshold_of_mean
from vicinal.service.measuring.group_trials import (
    MetricTrial,
    best_without_nearest,
    own_scores_apart,
    own_scores_with_one_less,
)
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.visits import Visits

ERROR_RATES: tuple[RateName, ...] = ("far", "frr", "fpir", "fnir")
_N_WORST = 10
# Standard deviations above what equal classes show from which a difference is no chance, and the least
# difference of a utility that is worth a word.
_CHANCE_SPREADS = 3.0
_LEAST_WORSE = 0.05
# Share of the strangers that may be unsure.
_MOST_UNSURE = 0.1


class RateEvidence(Frozen):
    """Rate at the threshold, and how far it can be trusted.

    Attributes:
        rate: Share of the trials with the event.
        low: Lower end of the 95 % interval for labels like these (`calibration.rate_interval`). It also holds
            for the rate that the threshold was chosen by.
        n_labels: Labels behind them; a negative pair counts under two.
        effective_labels: Labels of equal size that would weigh as evenly.
        leave_one_label_out: Lowest and highest rate when the trials of one label are left out.
    """

    rate: float
    low: float
    high: float
    n_trials: int
    n_labels: int
    effective_labels: float
    leave_one_label_out: tuple[float, float]


class VisitEvidence(Recorded):
    """Photos that were taken together, and what it changes to keep them apart.

    Attributes:
        by: Metadata column that names the visit, or `auto` where visits were looked for.
        n_visits: Visits of the gallery; an item alone is one of its own.
        joined: By the kind of evidence, items that it joins to another: `copies`, `times` and `series`.
        threshold_together: The threshold that the target would have got with all photos together; None if
            none holds it, or where that was not looked at.
        promised: The rates that would have been promised for it. Also `hit_rate_1`.
        shown: The rates that it shows with visits kept apart; the difference is the optimism of mixing them.
    """

    by: str
    n_visits: int
    joined: dict[str, int] = Field(default_factory=dict)
    threshold_together: float | None = None
    promised: dict[str, float] = Field(default_factory=dict)
    shown: dict[str, float] = Field(default_factory=dict)


class AnotherDay(Frozen):
    """Rate for photos of another day, as far as leaving items out tells it.

    Leave-one-out differs from a search with a new photo in two ways.

    A label has one photo less. Each query's miss is a product over its mates, so that by the inequality of
    Cauchy and Schwarz F(m + 1) / F(m) >= F(m) / F(m - 1), with F(m) the FNIR at m mates. The right side is
    measured: with a mate left out at random.

    Where nothing tells which photos were taken together, a query also finds photos of its own visit, and its
    strangers share light and shelf with it: it is missed too seldom and answered too often. A second reading
    leaves out what could be of one visit: for FNIR mates that are far more alike than the label's typical
    pair (`visits.look_alikes`), for FPIR the nearest label. The truth lies between, and neither end alone can
    be promised.

    Where groups are decided, both readings are made of group scores: the items that are left out are in no
    group's score. The inequality above holds for the best photo alone; for other forms of group score the
    lower end of the FNIR is taken down by its factor twice, which is wider and no more than a precaution.

    Attributes:
        apart: The rate of the second reading; None where visits are told apart.
        low: Lower end of the lowest reading's 95 % interval for labels like these.
        high: Upper end of the highest reading's.
    """

    apart: float | None
    low: float
    high: float


class ThresholdChoice(Frozen):
    """Threshold between both readings (`AnotherDay`), where these hold an FPIR or FNIR at different ones.

    The threshold lies between the one at which the stricter reading holds the target and the one at which the
    mean of both rates does. Which of them is right only photos of another day can tell. What the bundle's
    validation found (`starting_threshold`) decides, as far as it lies there; without it, the mean.

    Attributes:
        by: `bundle`: its own threshold; `strict` or `mean`: that end, the nearer one where the bundle's own
            lies beyond it.
        strict: Threshold at which the stricter reading holds the target.
        mean: The one at which the mean of both rates does.
        starting: The bundle's own; None where it has none for the pipeline and the form of group score.
    """

    by: Literal["strict", "mean", "bundle"]
    strict: float
    mean: float
    starting: float | None = None

    @classmethod
    def of(cls, strict: float, mean: float, starting: float | None) -> ThresholdChoice:
        """Choose between the ends."""
        low, high = sorted((strict, mean))
        chosen = mean if starting is None else min(max(starting, low), high)
        by: Literal["strict", "mean", "bundle"] = "strict" if chosen == strict else "mean"
        return cls(by="bundle" if chosen == starting else by, strict=strict, mean=mean, starting=starting)

    @property
    def threshold(self) -> float:
        """The one in force."""
        ends = {"strict": self.strict, "mean": self.mean}
        return ends.get(self.by, self.starting or 0.0)


class UnsureBand(Frozen):
    """Scores between a match and none: what a calibration cannot tell.

    It begins where the reading that accepts more (`AnotherDay`) holds the target, by answers where they do
    not tell the rate from it, or where a tenth of the strangers would be in it, and ends at the threshold.

    Attributes:
        lowest: Lowest score of an unsure answer.
        known: Share of the queries with a mate whose best mate scores in the band.
        strangers: Share of the queries without a mate whose best score lies in it.
    """

    lowest: float
    known: float
    strangers: float


class StatedRate(Frozen):
    """A rate with its 95 % interval."""

    rate: float
    low: float
    high: float

    @classmethod
    def of(cls, found: RateInterval) -> Self:
        """A rate as it is told."""
        return cls(rate=found.rate, low=found.low, high=found.high)


class AnswerEvidence(Frozen):
    """Evidence of a threshold from answers about pairs of photos (`calibration.rates.answered_pairs`).

    Attributes:
        n_pairs: Pairs that questions were drawn from: what searches for items of the gallery show.
        n_asked: Pairs that were answered.
        n_again: Further answers about the same pairs.
        n_skipped: Questions that could not be told.
        precision: Share of the accepted pairs that show the same thing.
        far: Share of the different pairs that are accepted.
        errors: How often the person errs.
    """

    n_pairs: int
    n_asked: int
    n_again: int
    n_skipped: int
    precision: StatedRate
    far: StatedRate
    errors: StatedRate


class SearchEvidence(Frozen):
    """Evidence of a threshold from answers to searches (`calibration.rates.answered_searches`).

    Attributes:
        n_sampled: Searches that the answered ones were drawn from, a random sample of all.
        n_answered: Searches that were drawn and answered.
        n_unsure: Those of them that could not be told, or were told differently: they count for the low end
            of an interval and against the high one.
        n_again: Searches that were asked about twice, and answered.
        n_disagreed: Those of them that were answered differently.
        strangers: Share of the searches for things that the gallery lacks, of those that could be told.
        before: Threshold in force before; None without one.
        at_before: The target's rate there by the answers, with an 80 % interval in place of 95 %.
    """

    n_sampled: int
    n_answered: int
    n_unsure: int
    n_again: int
    n_disagreed: int
    strangers: float
    before: float | None = None
    at_before: StatedRate | None = None

    @classmethod
    def of(cls, found: AnsweredSearches) -> Self:
        """Evidence of answered searches."""
        return cls(
            n_sampled=len(found.sample_scores),
            n_answered=len(found.top_scores),
            n_unsure=int(found.is_unsure.sum()),
            n_again=found.n_again,
            n_disagreed=found.n_disagreed,
            strangers=found.strangers,
        )


class OpisEvidence(Recorded):
    """OPIS in one space, on the pairs of the calibration; comparable on identical pairs only.

    Attributes:
        opis: Mean over the calibration range of the variance of the utility across classes, in [0, 0.25].
        epsilon_opis: Mean squared gap between the best and the worst 10 % of classes, rounded up, in [0, 1].
        floor: Mean OPIS of equal classes on the same pairs (see `pair_opis_floor`); None where it cannot be
            told.
        floor_spread: Standard deviation of that.
        epsilon_floor: Mean epsilon-OPIS of equal classes.
        n_classes: Classes with positive and negative pairs.
    """

    opis: float
    epsilon_opis: float
    floor: float | None
    floor_spread: float | None
    epsilon_floor: float | None
    n_classes: int

    @property
    def is_real(self) -> bool | None:
        """Tell whether the classes differ by more than chance explains; None where no floor is known."""
        if self.floor is None or self.floor_spread is None:
            return None
        return self.opis > self.floor + _CHANCE_SPREADS * self.floor_spread


class ClassEvidence(Recorded):
    """Mean utility of one class over the calibration range, in [0, 1]."""

    label: str
    mean_utility: float


@dataclass(frozen=True)
class SpaceOpis:
    """OPIS in one space, with the utilities behind it."""

    utilities: ClassUtilities
    evidence: OpisEvidence


class Evidence(Recorded):
    """Evidence that a calibration's rates rest on.

    Attributes:
        rates: By name: `far`, `frr`, `fpir`, `fnir` and `precision`, as far as they were measured. A
            precision is the share of mates in the matches of all queries, those without a mate included.
        absent: Share of the searches without a mate that the precision is for; None where it is not known.
        opis: How differently the classes fare under one threshold, by space: `initial` embeddings, `refined`
            ones where the pipeline refines, and `final` scores.
        worst_classes: The classes that the one threshold serves noticeably worse, by final scores over the
            calibration range: at most ten, the worst first. None where chance explains what differs.
        visits: Which photos were kept apart; None for queries from outside, and where visits play no part.
        another_day: `fnir`, `fpir` and `precision` for photos of another day, where the queries are items;
            else the intervals of `rates` speak of these.
        chosen: How the threshold was chosen between both readings; None where there is one.
        unsure: Scores that are neither a match nor none, for an FPIR or FNIR, by answers or where nothing
            tells which photos were taken together.
        answers: What was answered about pairs; None where labels were counted.
        searches: What was answered about searches; None where none were.
        top_scores: Histogram of the queries' best scores, which later ones are compared with
            (`calibration.drift`).
        metric: The gallery's own metric beside the best photo's score; None where that was not tried.
    """

    rates: dict[str, RateEvidence]
    absent: float | None = None
    opis: dict[str, OpisEvidence] = Field(default_factory=dict)
    worst_classes: tuple[ClassEvidence, ...] = ()
    visits: VisitEvidence | None = None
    another_day: dict[str, AnotherDay] = Field(default_factory=dict)
    chosen: ThresholdChoice | None = None
    unsure: UnsureBand | None = None
    answers: AnswerEvidence | None = None
    searches: SearchEvidence | None = None
    top_scores: TopScoreCounts = Field(description="Counts only: no score can be read from them.")
    metric: MetricTrial | None = None


def gather_evidence(
    measured: Measurement,
    target: Target,
    threshold: float,
    *,
    opis: Mapping[str, SpaceOpis] | None = None,
    visits: VisitEvidence | None = None,
    leaves_one_out: bool = False,
    apart: Apart | None = None,
    chosen: ThresholdChoice | None = None,
    metric: MetricTrial | None = None,
) -> Evidence:
    """Evidence for the rates at a threshold; `apart` is the second reading where nothing tells visits."""
    rates: tuple[RateName, ...] = (*ERROR_RATES, "precision")
    counts = {rate: label_counts(measured.trials, rate, threshold) for rate in rates}
    searches = measured.searches
    found = {rate: rate_evidence(one, is_ratio=rate == "precision") for rate, one in counts.items() if one}
    if searches is not None:
        found |= {
            rate: _of_searches(found[rate], searches, rate, threshold)
            for rate in SEARCH_RATES
            if rate in found
        }
    return Evidence(
        rates=found,
        absent=measured.trials.absent if measured.absent is None else measured.absent,
        opis={space: one.evidence for space, one in (opis or {}).items()},
        worst_classes=_worst_classes(opis["final"]) if opis and "final" in opis else (),
        visits=visits,
        another_day=_another_day(measured, threshold, apart, found) if leaves_one_out else {},
        chosen=chosen,
        unsure=apart and apart.unsure(measured, target, threshold),
        top_scores=TopScoreCounts.of_calibration(measured.searched_scores, threshold),
        searches=searches and SearchEvidence.of(searches),
        metric=metric,
    )


def visit_evidence(
    visits: Visits, apart: Measurement, together: Measurement | None, target: Target
) -> VisitEvidence:
    """Compare a calibration with one of all photos `together`, as far as that was measured."""
    threshold = None
    if together is not None:
        with suppress(UnreachableTargetError):
            threshold = choose_threshold(together.trials, target)
    return VisitEvidence(
        by=visits.by,
        n_visits=visits.n,
        joined=dict(visits.joined),
        threshold_together=threshold,
        promised=_rates(together, threshold) if together else {},
        shown=_rates(apart, threshold) if together else {},
    )


def _rates(measured: Measurement, threshold: float | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if threshold is not None:
        counts = {name: label_counts(measured.trials, name, threshold) for name in ERROR_RATES}
        found = {name: one.rate for name, one in counts.items() if one}
    return found if measured.hit_rate_1 is None else {**found, "hit_rate_1": measured.hit_rate_1}


def _another_day(
    measured: Measurement,
    threshold: float,
    apart: Apart | None,
    rates: Mapping[RateName, RateEvidence],
) -> dict[str, AnotherDay]:
    readings = {} if apart is None else apart.counts(measured, threshold)
    found: dict[str, AnotherDay] = {}
    shrinks_by: dict[RateName, float] = {"fnir": _with_one_mate_more(measured, threshold), "fpir": 1.0}
    for name, shrinks in shrinks_by.items():
        as_is, counts = rates.get(name), readings.get(name)
        if as_is is not None:
            second = as_is if counts is None else rate_interval(counts)
            low, high = min(as_is.low, second.low), max(as_is.high, second.high)
            if name == "fpir":
                # FPIR varies more over labels that are queries and impostors both.
                others, own = measured.without, measured.codes_without.astype(np.int64)
                effect = impostor_label_effect(others.scores, others.groups, own, threshold)
                both = RateInterval(as_is.rate, low, high, 0.95).widened(effect)
                low, high = both.low, both.high
            rate = None if counts is None else second.rate
            found[name] = AnotherDay(apart=rate, low=low * shrinks, high=high)
    right = rates.get("precision")
    if right is not None and "fnir" in found:
        # At worst so many fewer of the right matches are found, and so many more of the wrong ones.
        fewer = (1.0 - found["fnir"].high) / max(1.0 - rates["fnir"].rate, 1e-9)
        more = found["fpir"].high / rates["fpir"].rate if rates.get("fpir") and rates["fpir"].rate else 1.0
        odds = right.low * min(1.0, fewer), (1.0 - right.low) * max(1.0, more)
        low = odds[0] / sum(odds) if any(odds) else 0.0
        found["precision"] = AnotherDay(apart=None, low=low, high=right.high)
    return found


@dataclass(frozen=True)
class Apart:
    """Second reading: scores without what could be of the query's visit, for which (n,) `look_alikes` stand:
    (n,) of the best mate, -inf without one, and (Q,) of the best stranger.
    """

    best: Floats
    strangers: Floats

    @classmethod
    def of(cls, measured: Measurement, look_alikes: Ints) -> Apart:
        """Leave out mates that look alike, and the nearest label."""
        if measured.group is not None:
            return cls(own_scores_apart(measured, look_alikes), best_without_nearest(measured))
        pairs, best = measured.pairs, np.full(len(measured.codes), -np.inf)
        is_apart = look_alikes[measured.images[pairs.mate_queries]] != look_alikes[pairs.mate_items]
        np.maximum.at(best, pairs.mate_queries[is_apart], pairs.mate_scores["final"][is_apart])
        return cls(best, measured.without.best_without_nearest)

    @property
    def known(self) -> Floats:
        """(m,) scores of the best mates, where there are any."""
        return self.best[np.isfinite(self.best)]

    def counts(self, measured: Measurement, threshold: float) -> dict[RateName, LabelCounts | None]:
        """Misses and wrong matches."""
        is_known = np.isfinite(self.best)
        return {
            "fnir": LabelCounts.of(self.best[is_known] < threshold, measured.codes[is_known]),
            "fpir": LabelCounts.of(self.strangers >= threshold, measured.codes_without),
        }

    def choose(
        self, trials: Trials, target: Target, together: float, starting: float | None
    ) -> ThresholdChoice | None:
        """Choose between the threshold of photos `together` and this reading's; None where one is enough."""
        own = self._threshold(target)
        if own is None or target.sure is not None:
            return None
        if target.rate == "fpir":
            readings, strict = (trials.best_scores_without_mate, self.strangers), max(together, own)
        else:
            readings, strict = (trials.best_mate_scores, self.known), min(together, own)
        return ThresholdChoice.of(strict, threshold_of_mean(readings, target), starting)

    def _threshold(self, target: Target) -> float | None:
        """The threshold that this reading alone would get; None for a target that both readings share."""
        if target.rate == "fpir" and len(self.strangers):
            return lowest_threshold(self.strangers, target.value)
        if target.rate == "fnir" and len(self.known):
            return highest_threshold(self.known, target.value)
        return None

    def unsure(self, measured: Measurement, target: Target, threshold: float) -> UnsureBand | None:
        """Scores from the threshold of this reading up to the one in force; None where there are none."""
        lowest, trials = self._threshold(target), measured.trials
        strangers = trials.best_scores_without_mate
        if lowest is not None and len(strangers):
            share = min(0.99, float((strangers >= threshold).mean()) + _MOST_UNSURE)
            lowest = max(lowest, lowest_threshold(strangers, share) or 0.0)
        if lowest is None or lowest >= threshold:
            return None
        shares = [
            float(((one >= lowest) & (one < threshold)).mean()) if len(one) else 0.0
            for one in (trials.best_mate_scores, strangers)
        ]
        return UnsureBand(lowest=lowest, known=shares[0], strangers=shares[1])


def _with_one_mate_more(measured: Measurement, threshold: float) -> float:
    """A lower end of how many times the FNIR is that of queries with one mate more, in [0, 1]."""
    if measured.group is not None:
        less = own_scores_with_one_less(measured)
        several = np.isfinite(less)
        missed = float((measured.mates.best_scores[several] < threshold).sum())
        also = float((less[several] < threshold).sum())
        ratio = min(1.0, missed / also) if also else 1.0
        return ratio if measured.group.score == "max" else ratio**2
    pairs = measured.pairs
    is_missed = pairs.mate_scores["final"] < threshold
    n = np.bincount(pairs.mate_queries, minlength=len(measured.codes))
    n_found = n - np.bincount(pairs.mate_queries, weights=is_missed, minlength=len(n))
    several = n > 1
    is_lost = n_found[several] == 0
    # With one mate of several left out, a query that was found by it alone is missed as well.
    also = float((is_lost + (n_found[several] == 1) / n[several]).sum())
    return float(is_lost.sum()) / also if also > 0.0 else 1.0


def rate_evidence(counts: LabelCounts, *, is_ratio: bool = False) -> RateEvidence:
    """Evidence for one rate."""
    found = ratio_interval(counts) if is_ratio else rate_interval(counts)
    return RateEvidence(
        rate=found.rate,
        low=found.low,
        high=found.high,
        n_trials=counts.n_trials,
        n_labels=counts.n_labels,
        effective_labels=counts.effective_labels,
        leave_one_label_out=counts.leave_one_label_out,
    )


def _of_searches(
    found: RateEvidence, searches: AnsweredSearches, rate: SearchRate, threshold: float
) -> RateEvidence:
    """The same with the interval of answered searches."""
    own = searches.interval(rate, threshold)
    if own is None:
        return found
    return found.model_copy(update={"rate": own.rate, "low": own.low, "high": own.high})


def measure_opis(measured: Measurement) -> dict[str, SpaceOpis]:
    """OPIS with its floor by space: `initial`, `refined` where the pipeline refines, and `final`."""
    spaces = [space for space in measured.pairs.mate_scores if space != "final"]
    if measured.group is None:
        spaces.append("final")
    if not len(measured.pairs.mate_queries) or not measured.trials_in(spaces[0]).n_non_mates:
        return {}
    mates = MatePairs.of(measured.images[measured.pairs.mate_queries], measured.pairs.mate_items)
    try:
        return {space: _measure_space(measured, space, mates) for space in spaces}
    except NoUtilityError:
        return {}


def _worst_classes(found: SpaceOpis) -> tuple[ClassEvidence, ...]:
    """Classes whose mean utility is noticeably below that of all, by more than chance explains."""
    if not found.evidence.is_real:
        return ()
    utilities, floor = found.utilities, found.evidence.floor or 0.0
    means = utilities.utilities.mean(axis=1)
    worst = utilities.worst(_N_WORST)
    worse = max(_LEAST_WORSE, _CHANCE_SPREADS * float(np.sqrt(floor)))
    return tuple(
        ClassEvidence(label=str(utilities.labels[row]), mean_utility=float(means[row]))
        for row in worst[means[worst] < means.mean() - worse]
    )


def _measure_space(measured: Measurement, space: str, mates: MatePairs) -> SpaceOpis:
    trials = measured.trials_in(space)
    utilities = class_utilities(trials)
    pairs = measured.pairs
    images = PairImages(
        mates=mates,
        non_mate_queries=pairs.non_mates[space].queries,
        query_labels=measured.codes,
        n_negatives=pairs.n_negatives,
    )
    floor: OpisFloor | None = None
    low = trials.low_pairs
    if low is None or utilities.thresholds[-1] >= low.ceiling:
        floor = pair_opis_floor(utilities, trials, images)
    evidence = OpisEvidence(
        opis=utilities.opis,
        epsilon_opis=utilities.epsilon_opis,
        floor=floor and floor.opis,
        floor_spread=floor and floor.opis_spread,
        epsilon_floor=floor and floor.epsilon_opis,
        n_classes=len(utilities.labels),
    )
    return SpaceOpis(utilities, evidence)
