"""Way from a stated target to the one threshold.

A score is accepted when it reaches the threshold. What holds a rate on given trials is counted exactly, ties
included; `*_threshold` answers None when no threshold in [0, 1] holds it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from vicinal.calibration.arrays import Codes, Floats, Ints
from vicinal.calibration.consistency.opis import class_utilities
from vicinal.calibration.errors import (
    CalibrationError,
    NotEnoughAnswersError,
    NotEnoughLabelsError,
    NotEnoughTrialsError,
    UnreachableTargetError,
)
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.guarantees import (
    expected_rate,
    labels_for_bound,
    labels_for_expected,
    upper_bound,
)
from vicinal.calibration.rates.label_counts import LabelCounts
from vicinal.calibration.trials import LowPairs, Trials

_TARGET = re.compile(
    r"(?P<rate>[a-z]+)(?:\s*(?P<sign>=|<=|≤|>=|≥)\s*|\s+)(?P<value>[0-9.e+-]+|mean|worst)\s*(?P<percent>%?)"
    r"(?:, (?:in the|sure) (?P<sure>[0-9.]+ %|mean))?"
)
_BOUNDS: dict[str, tuple[str, ...]] = {"precision": (">=", "≥"), "utility": ()}
_SHARES = {"mean": 1.0, "worst": 0.1}
# The stricter end of the calibration range (TCM, section 3.2).
_STRICT_FAR = 0.01
# A rate of 0 in n trials shows, at 95 % confidence, a true rate below about 3 / n.
_LEAST_ERRORS = 3.0 - 1e-9
_LEAST_ANSWERS = 10
# With fewer labels, none of which has the event, more than half of those to come may have it: the upper end
# of the 95 % interval is 1 - .025^(1 / n), .60 with four and .52 with five.
LEAST_LABELS = 5


class Target(Frozen):
    """Target that the threshold must hold.

    Attributes:
        rate: `far` (share of negative pairs accepted), `frr` (share of positive pairs rejected), `fpir`
            (share of queries without a mate that get any match), `fnir` (share of queries with a mate
            that get none of theirs), `precision` (share of the returned matches that are mates, over
            queries with and without a mate), or `utility` (within the calibration range of OPIS).
        value: For an error rate the highest that is allowed, in (0, 0.5]. For `precision` the lowest that is
            allowed, in [0.5, 1). For `utility` the share of the classes, the worst ones, whose mean
            utility shall be largest, in (0, 1].
        sure: How surely an FPIR or FNIR is held for labels that nobody has seen: a confidence in (0, 1), or
            `mean`, which holds it in the mean over them (`calibration.rates.guarantees`). None counts the
            trials and leaves what unseen labels will show to the interval.
    """

    rate: Literal["far", "frr", "fpir", "fnir", "precision", "utility"]
    value: float = Field(gt=0.0, le=1.0)
    sure: Annotated[float, Field(gt=0.0, lt=1.0)] | Literal["mean"] | None = None

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if self.rate == "precision" and not 0.5 <= self.value < 1.0:
            raise ValueError(f"a precision of {self.value:g} is out of range, expected 0.5 up to below 1")
        if self.rate not in ("precision", "utility") and self.value > 0.5:
            raise ValueError(f"a {self.rate} of {self.value:g} is out of range, expected at most 0.5")
        if self.sure is not None and self.rate not in ("fpir", "fnir"):
            raise ValueError(f"a {self.rate} cannot be held more surely: that is for fpir and fnir")
        return self

    @classmethod
    def parse(cls, text: str, sure: str | None = None) -> Self:
        """Read `far=1e-3`, `fpir=5%`, `precision=95%`, `utility=mean` or `utility=worst` (worst 10 %), or
        what answers write, such as `FPIR 5 %`, and how surely an FPIR or FNIR is held: `95%` or `mean`.
        """
        plain = str(text).lower().strip().replace("utility of the worst", "utility")
        found = _TARGET.fullmatch("utility=mean" if plain == "mean utility" else plain)
        try:
            if found is None or found["sign"] not in (None, "=", *_BOUNDS.get(found["rate"], ("<=", "≤"))):
                raise ValueError
            if found["rate"] == "utility" and found["value"] in _SHARES and not found["percent"]:
                return cls(rate="utility", value=_SHARES[found["value"]])
            value = float(found["value"]) / (100.0 if found["percent"] else 1.0)
            target = cls.model_validate({"rate": found["rate"], "value": value})
        except ValueError as error:
            raise CalibrationError(
                f"{text!r} is no target, which is a text: write far=0.001, frr=10%, fpir=5% or fnir=20% with "
                "a value up to 0.5, or precision=95%, utility=mean or utility=worst"
            ) from error
        held = found["sure"] if sure is None else sure
        return target if held is None else target._held(held)

    def _held(self, sure: str) -> Self:
        try:
            share = sure if sure == "mean" else float(sure.rstrip("% ")) / (100.0 if "%" in sure else 1.0)
            return type(self).model_validate({**self.model_dump(), "sure": share})
        except ValueError as error:
            raise CalibrationError(
                f"{self} cannot be held with sure={sure!r}: write sure=95% or sure=mean, with fpir or fnir"
            ) from error

    def __str__(self) -> str:
        percent = f"{100.0 * self.value:.4g} %"
        if self.rate == "utility":
            return f"utility of the worst {percent}" if self.value < 1.0 else "mean utility"
        words = f"{self.rate if self.rate == 'precision' else self.rate.upper()} {percent}"
        if self.sure is None:
            return words
        return f"{words}, in the mean" if self.sure == "mean" else f"{words}, sure {100.0 * self.sure:.4g} %"


_ANSWERED = {
    "fpir": "searches for things that the gallery lacks",
    "fnir": "searches for things that the gallery has",
}


def choose_threshold(trials: Trials, target: Target) -> float:
    """The best threshold in [0, 1] that holds the target on the trials.

    FAR and FPIR fall with the threshold, and lower thresholds find more mates: the lowest that holds the
    rate is chosen. FRR and FNIR rise with it, and higher thresholds keep out more: the highest is chosen.
    For a precision it is the lowest that has it, for a utility the one with the largest.

    At least 3 / value trials are needed (for a precision: returned matches, and 1 - value): with fewer, a
    rate of zero in the trials would not show, at 95 % confidence, that the true rate is below the target.
    They must be of five labels, where labels are known: of fewer, whatever they show says nothing of others.
    Where the target is held more surely, it is labels that are needed (`calibration.rates.guarantees`).

    Queries that stand for different numbers of searches count for as many. They were drawn where an answer
    tells most, and fewer are needed: 10, and as many as labels by which an expected rate can be held.

    Raises:
        NotEnoughTrialsError: There are too few trials.
        NotEnoughLabelsError: There are too few labels behind them.
        UnreachableTargetError: No threshold holds the target.
    """
    if target.rate == "utility":
        _check_trials(trials.n_non_mates, _STRICT_FAR, "negative pairs")
        return class_utilities(trials).best_threshold(target.value)
    if target.rate == "precision":
        return _precise_threshold(trials, target)
    if target.sure is not None:
        return _sure_threshold(trials, target)
    if trials.is_weighted and target.rate in ("fpir", "fnir"):
        return _weighted_threshold(trials, target)
    scores, what = _scores_of(trials, target)
    low = trials.low_pairs if target.rate == "far" else None
    n_trials = len(scores) + (low.n if low else 0)
    _check_trials(n_trials, target.value, what)
    _check_labels(trials, target, what)
    if target.rate in ("far", "fpir"):
        threshold, reachable, end = lowest_threshold(scores, target.value, low), scores >= 1.0, "score 1"
    else:
        threshold, reachable, end = highest_threshold(scores, target.value), scores < 0.0, "have no score"
    if threshold is None:
        raise UnreachableTargetError(
            str(target), float(reachable.sum() / n_trials), "lowest", f"{int(reachable.sum()):,} {what} {end}"
        )
    return threshold


def _scores_of(trials: Trials, target: Target) -> tuple[Floats, str]:
    found: dict[str, tuple[Floats, str]] = {
        "far": (trials.rising_non_mates, "negative pairs"),
        "frr": (trials.mate_scores, "positive pairs"),
        "fpir": (trials.best_scores_without_mate, "queries without a mate"),
        "fnir": (trials.best_mate_scores, "queries with a mate"),
    }
    return found[target.rate]


def _sure_threshold(trials: Trials, target: Target) -> float:
    """The best threshold whose bound over labels, each of one weight, stays within the rate."""
    labels, sure, rate = trials.labels, target.sure, target.value
    if labels is None or sure is None:
        raise CalibrationError("how surely a rate is held is told by labels, which these trials lack")
    rejects = target.rate == "fnir"
    (scores, what), codes = _scores_of(trials, target), labels.best_mates if rejects else labels.without_mate
    weights = _weights_of(trials, target) if trials.is_weighted else np.ones(len(scores))
    needed = labels_for_expected(rate) if sure == "mean" else labels_for_bound(rate, confidence=sure)
    _, own = np.unique(codes, return_inverse=True)
    sizes = np.bincount(own, weights)
    n_labels = len(sizes)
    if n_labels < needed:
        raise NotEnoughLabelsError(str(target), n_labels, needed, what)
    # Each label has one weight, but where queries were drawn for what they tell.
    of_labels = sizes / sizes.max() if trials.is_weighted else np.ones(n_labels)

    def bound(threshold: float) -> float:
        is_event = scores < threshold if rejects else scores >= threshold
        events = np.minimum(np.bincount(own, is_event * weights, n_labels) / sizes, 1.0)
        shares = LabelCounts(events * of_labels, of_labels)
        return expected_rate(shares, of_labels) if sure == "mean" else upper_bound(shares, confidence=sure)

    # From the strictest on; the bound rises along them.
    tried = np.unique(np.clip(scores if rejects else np.nextafter(scores, np.inf), _LOWEST, _HIGHEST))
    tried = tried if rejects else np.concatenate([[_LOWEST], tried])[::-1]
    fitting = bisect.bisect_right(tried, rate, key=bound)
    if not fitting:
        raise UnreachableTargetError(
            str(target), bound(float(tried[0])), "lowest", f"the {what} are too few or too unlike"
        )
    return float(tried[fitting - 1])


def _weights_of(trials: Trials, target: Target) -> Floats:
    return trials.best_mate_weights if target.rate == "fnir" else trials.without_mate_weights


def _weighted_threshold(trials: Trials, target: Target) -> float:
    """The best threshold that holds the weighted share of the searches."""
    scores, _ = _scores_of(trials, target)
    weights, what = _weights_of(trials, target), _ANSWERED[target.rate]
    order = np.argsort(scores if target.rate == "fnir" else -scores, kind="stable")
    # Not by their weights: whoever refuses what looks bad keeps what looks good.
    needed = max(_LEAST_ANSWERS, labels_for_expected(target.value))
    if len(scores) < needed:
        raise NotEnoughAnswersError(str(target), len(scores), needed, what)
    # Up to the first score that may not have the event any more.
    shares = weights[order].cumsum() / weights.sum()
    # Sums of weights round.
    place = int(np.searchsorted(shares, target.value + 1e-12, side="right"))
    first = scores[order][min(place, len(order) - 1)]
    if target.rate == "fnir":
        threshold, reachable, end = min(_HIGHEST, float(first)), scores < 0.0, "have no score"
    else:
        threshold, reachable = max(_LOWEST, float(np.nextafter(first, np.inf))), scores >= 1.0
        end = "score 1"
    if not _LOWEST <= threshold <= _HIGHEST:
        share, n = float(weights[reachable].sum() / weights.sum()), int(reachable.sum())
        raise UnreachableTargetError(str(target), share, "lowest", f"{n:,} {what} {end}")
    return threshold


def _precise_threshold(trials: Trials, target: Target) -> float:
    _check_precision(trials, len(trials.answer_scores), target)
    if not trials.is_weighted:
        _check_labels(trials, target, "returned matches")
    distinct, returned, shares = _precision_steps(trials)
    # Precision can fall and rise again along the threshold; what counts is the lowest that has it.
    precise = np.flatnonzero(shares >= target.value)
    if not len(precise):
        highest = float(max(shares, default=0.0))
        raise UnreachableTargetError(str(target), highest, "highest", "non-mates score as high as mates")
    step = int(precise[-1])
    _check_precision(trials, int(returned[step]), target)
    # Down to just above the next lower score the same candidates are returned.
    below = distinct[step + 1] if step + 1 < len(distinct) else -np.inf
    return max(_LOWEST, float(np.nextafter(below, np.inf)))


def _precision_steps(trials: Trials) -> tuple[Floats, Ints, Floats]:
    """Distinct scores from the highest down, candidates that reach each, and the share of mates in them."""
    usable, counted = trials.answer_scores >= _LOWEST, None
    if len(trials.answer_weights):
        # What counts for nothing is not returned.
        usable &= trials.answer_weights > 0.0
        counted = trials.answer_weights[usable]
    distinct, inverse = np.unique(-trials.answer_scores[usable], return_inverse=True)
    returned = np.bincount(inverse, minlength=len(distinct)).cumsum()
    is_right = trials.answer_is_mate[usable]
    all_of = np.bincount(inverse, counted, minlength=len(distinct)).cumsum()
    right = None if counted is None else counted[is_right]
    mates = np.bincount(inverse[is_right], right, minlength=len(distinct)).cumsum()
    return -distinct, returned, mates / all_of


def _check_precision(trials: Trials, n_returned: int, target: Target) -> None:
    allowed = 1.0 - target.value
    if not trials.is_weighted:
        _check_trials(n_returned, allowed, "returned matches")
        return
    needed = max(_LEAST_ANSWERS, labels_for_expected(allowed))
    if n_returned < needed:
        raise NotEnoughAnswersError(str(target), n_returned, needed, "searches that return a match")


def _check_trials(n_trials: int, rate: float, what: str) -> None:
    if n_trials * rate < _LEAST_ERRORS:
        raise NotEnoughTrialsError(rate, n_trials, what)


def _check_labels(trials: Trials, target: Target, what: str) -> None:
    """Refuse trials of so few labels that a rate counted on them says nothing of others."""
    labels = trials.labels
    if labels is None:
        return
    behind: dict[str, tuple[Codes, ...]] = {
        "far": (labels.non_mate_queries, labels.non_mate_items),
        "frr": (labels.mates,),
        "fpir": (labels.without_mate,),
        "fnir": (labels.best_mates,),
        "precision": (labels.answers,),
    }
    n_labels = len(np.unique(np.concatenate(behind[target.rate])))
    if n_labels < LEAST_LABELS:
        raise NotEnoughLabelsError(str(target), n_labels, LEAST_LABELS, what)


_LOWEST, _HIGHEST = 0.0, 1.0


def n_allowed(n_trials: int, rate: float) -> int:
    """The largest number of trials whose share of all is at most the rate."""
    allowed = int(rate * n_trials)
    # The product may round to the other side of a whole number; what counts is the quotient.
    if (allowed + 1) / n_trials <= rate:
        allowed += 1
    elif allowed / n_trials > rate:
        allowed -= 1
    return allowed


def lowest_threshold(scores: Floats, rate: float, low: LowPairs | None = None) -> float | None:
    """The lowest threshold that at most a share in [0, 1) of the scores, at least one, reaches; with further
    trials, all of lower scores, of which only counts are known, it may be the edge of a bin.
    """
    allowed = n_allowed(len(scores) + (low.n if low else 0), rate)
    if low is not None and allowed >= len(scores):
        return low.lowest_edge(allowed - len(scores))
    rank = len(scores) - 1 - allowed
    # Every score up to the first one too many must stay below the threshold, ties included.
    threshold = max(_LOWEST, float(np.nextafter(np.partition(scores, rank)[rank], np.inf)))
    return threshold if threshold <= _HIGHEST else None


def highest_threshold(scores: Floats, rate: float) -> float | None:
    """The highest threshold that at most a share in [0, 1) of the scores, at least one, misses."""
    rank = n_allowed(len(scores), rate)
    # The first score that may not be missed; a threshold above it would miss it too.
    threshold = min(_HIGHEST, float(np.partition(scores, rank)[rank]))
    return threshold if threshold >= _LOWEST else None


def threshold_of_mean(readings: Sequence[Floats], target: Target) -> float:
    """The best threshold at which an FPIR or FNIR holds in the mean over readings, at least one score each.

    Where none does, it is the strictest.
    """
    rejects, scores = target.rate == "fnir", np.concatenate(readings)
    tried = np.unique(np.clip(scores if rejects else np.nextafter(scores, np.inf), _LOWEST, _HIGHEST))
    tried = np.unique(np.append(tried, _LOWEST))
    ordered = [np.sort(one) for one in readings]
    below = [np.searchsorted(one, tried) for one in ordered]
    events = below if rejects else [len(one) - n for one, n in zip(ordered, below, strict=True)]
    rates = np.mean([n / len(one) for one, n in zip(ordered, events, strict=True)], axis=0)
    holding = tried[rates <= target.value]
    return float(holding.max(initial=_LOWEST) if rejects else holding.min(initial=_HIGHEST))
