"""A threshold for the results of any search engine, from the labels of queries and of what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, Floats, Ints, Mask, Objects
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.intervals import RateInterval, rate_interval, ratio_interval
from vicinal.calibration.rates.label_counts import RateName, impostor_label_effect, label_counts
from vicinal.calibration.targets import Target, choose_threshold
from vicinal.calibration.trials import TrialLabels, Trials

_RATES = ("fpir", "fnir", "precision")
_TURN = "scores are higher for what is more alike: give distances with their sign turned"
# From this share of the queries on, of at least so many, scores are taken for distances.
_INVERTED, _LEAST_QUERIES = 0.75, 20
# A score below all others: a mate that no result holds, or a place without a result.
_NONE = -1.0


@dataclass(frozen=True)
class CalibratedThreshold:
    """The one threshold of a search, and what it promises for labels like those it was measured on.

    Attributes:
        threshold: Lowest score of a match, on the scale of the scores that were given.
        target: What it holds.
        fpir: Share of the queries without a mate that get any match; a 95 % interval with it.
        fnir: Share of the queries with a mate that get none of theirs among the results; None without such.
        precision: Share of the matches that are mates, over queries with and without; None without matches.
        n_labels: Labels of the queries: what the intervals rest on.
        warnings: What could make the rates wrong.
        absent: Share of the searches for things that the gallery lacks, which the precision is for.
    """

    threshold: float
    target: Target
    fpir: RateInterval
    fnir: RateInterval | None
    precision: RateInterval | None
    n_queries: int
    n_labels: int
    warnings: tuple[str, ...] = ()
    absent: float | None = None

    def accepts(self, scores: npt.ArrayLike) -> Mask:
        """Tell which scores are matches.

        Args:
            scores: Of any shape, on the scale of those that were given; NaN is no match.
        """
        return np.asarray(scores, dtype=np.float64) >= self.threshold

    def __str__(self) -> str:
        rates = {"precision": self.precision, "FPIR": self.fpir, "FNIR": self.fnir}
        stated = ", ".join(
            f"{name} {100 * one.rate:.1f} % [{100 * one.low:.1f}, {100 * one.high:.1f}]"
            for name, one in rates.items()
            if one
        )
        mix = "" if self.absent is None else f", {100 * self.absent:.0f} % of searches for what is lacking"
        return f"threshold {self.threshold:.6g} for {self.target}: {stated}, on {self.n_labels:,} labels{mix}"


def calibrate_threshold(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    query_labels: Sequence[Any] | AnyArray,
    *,
    target: str = "fpir=5%",
    gallery_labels: Sequence[Any] | None = None,
    absent: float | None = None,
) -> CalibratedThreshold:
    """Find the threshold that holds a stated rate on the results of a search, whatever made them.

    Each query is judged twice: with its own label among the results, for what is found, and without, as if
    the gallery did not have it, for what is answered wrongly. Only the order of scores counts, so that any
    scale will do, as long as more alike is higher: give a distance with its sign turned.

    A query that is itself in the gallery must be left out of its results, and so must photos that were
    taken together with it: they promise more than tomorrow's photo will keep.

    Args:
        scores: (n, k) scores of each query's results, in any order; NaN or -inf where there are fewer.
        labels: (n, k) label of each result, None for one without.
        query_labels: (n,) label of each query.
        target: `fpir=5%`, `fnir=20%` or `precision=95%`; see `Target.parse`.
        gallery_labels: Labels that the gallery has; those that stand in any result when None. A query of
            another label has no mate.
        absent: Expected share of searches for things that the gallery lacks, in [0, 1), which the precision
            is for; as the queries are judged when None, which is half where all have mates.

    Raises:
        CalibrationError: The shapes do not fit, a query has no label, or the target is none of search
            results or cannot be read.
        NotEnoughTrialsError: Too few queries for the target.
        NotEnoughLabelsError: Too few labels behind them.
        UnreachableTargetError: No threshold holds it.
    """
    wanted = Target.parse(target)
    if wanted.rate not in _RATES:
        raise CalibrationError(
            f"{wanted} needs all pairs, which results do not hold: ask for fpir, fnir or precision"
        )
    results = _Results.of(scores, labels, query_labels, gallery_labels)
    results.require_upright()
    trials = results.trials() if absent is None else results.trials().at_mix(_share(absent))
    threshold = choose_threshold(trials, wanted)
    rates = {name: _interval(trials, name, threshold) for name in ("fpir", "fnir", "precision")}
    fpir = rates["fpir"]
    if fpir is None:
        raise CalibrationError("there are no queries")
    return CalibratedThreshold(
        threshold=results.scale.value_of(threshold),
        target=wanted,
        fpir=fpir.widened(results.impostor_effect(threshold)),
        fnir=rates["fnir"],
        precision=rates["precision"],
        n_queries=len(results.own),
        n_labels=len(np.unique(results.own)),
        warnings=tuple(results.warnings()),
        absent=trials.absent if absent is None else absent,
    )


def _share(absent: float) -> float:
    if not 0.0 <= absent < 1.0:
        raise CalibrationError(f"absent is {absent}, expected a share of the searches from 0 up to below 1")
    return absent


def _interval(trials: Trials, name: RateName, threshold: float) -> RateInterval | None:
    counts = label_counts(trials, name, threshold)
    if counts is None:
        return None
    return ratio_interval(counts) if name == "precision" else rate_interval(counts)


def _require_one_kind(asked: Iterable[Any], present: set[Any]) -> None:
    """Refuse labels that are the same only to a person, as 3 and '3'."""
    if not present.isdisjoint(asked):
        return
    by_text = {_text(one): one for one in present}
    for one in asked:
        if (other := by_text.get(_text(one))) is not None:
            raise CalibrationError(
                f"query label {one!r} is no label of a result, and {other!r} of type {type(other).__name__} "
                "is one: give both as one type"
            )


def _text(label: Any) -> str:
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


@dataclass(frozen=True)
class _Scale:
    """Distinct scores, ascending; their places stand for them in [0, 1), which keeps their order."""

    distinct: Floats

    def places(self, scores: Floats) -> Floats:
        places = np.searchsorted(self.distinct, scores) / max(len(self.distinct), 1)
        return np.where(np.isfinite(scores), places, _NONE)

    def value_of(self, place: float) -> float:
        """The lowest number that exactly those scores reach whose places reach a place."""
        first = int(np.searchsorted(self.places(self.distinct), place))
        if first < len(self.distinct) and self.places(self.distinct[first : first + 1])[0] == place:
            return float(self.distinct[first])
        return float(np.nextafter(self.distinct[first - 1], np.inf)) if first else float(self.distinct[0])


@dataclass(frozen=True)
class _Results:
    """Results of all queries, best first."""

    scale: _Scale
    scores: Floats  # (n, k) places of the scores; `_NONE` where there is no result
    codes: Ints  # (n, k) number of the label of each result; beyond those of the labels for one without
    own: Ints  # (n,) number of each query's label
    has_mate: Mask  # (n,) whether the gallery has that label
    names: Objects  # (L,) labels

    @classmethod
    def of(cls, scores: Any, labels: Any, query_labels: Any, gallery_labels: Any) -> _Results:
        found = np.asarray(scores, dtype=np.float64)
        given, asked = np.asarray(labels, dtype=object), np.asarray(query_labels, dtype=object)
        if found.ndim != 2 or given.shape != found.shape or asked.shape != found.shape[:1]:
            raise CalibrationError(
                f"scores have the shape {found.shape}, labels {given.shape} and query_labels {asked.shape}, "
                "expected (n, k), (n, k) and (n,)"
            )
        if np.isposinf(found).any():
            row, place = np.argwhere(np.isposinf(found))[0]
            raise CalibrationError(
                f"the score of result {place} of query {row} is infinite: NaN or -inf stand where there is "
                f"no result, and {_TURN}"
            )
        is_there = np.isfinite(found)
        if not is_there.any():
            raise CalibrationError("there are no results")
        if any(_is_missing(label) for label in asked):
            raise CalibrationError("a query has no label: leave it out")
        is_labelled = is_there & ~np.array([_is_missing(one) for one in given.flat]).reshape(given.shape)
        present = set(given[is_labelled]) if gallery_labels is None else set(gallery_labels)
        _require_one_kind(asked, present)
        # As texts only for their order: labels of one call may be numbers and texts.
        names = sorted({*asked, *given[is_labelled]}, key=lambda one: (str(type(one)), str(one)))
        numbers = {name: number for number, name in enumerate(names)}
        codes = len(names) + np.arange(found.size).reshape(found.shape)
        codes[is_labelled] = [numbers[one] for one in given[is_labelled]]
        scale = _Scale(np.unique(found[is_there]))
        order = np.argsort(-np.where(is_there, found, -np.inf), axis=1, kind="stable")
        return cls(
            scale,
            np.take_along_axis(scale.places(found), order, axis=1),
            np.take_along_axis(codes, order, axis=1),
            np.array([numbers[one] for one in asked], dtype=np.int64),
            np.array([one in present for one in asked], dtype=bool),
            np.array(names, dtype=object),
        )

    @property
    def is_own(self) -> Mask:
        """(n, k) results with the label of their query."""
        return np.asarray((self.codes == self.own[:, None]) & (self.scores > _NONE))

    @property
    def is_full_of_own(self) -> Mask:
        """(n,) queries whose results are of their own label throughout, so that others may follow."""
        return np.asarray(self.is_own.all(axis=1))

    @property
    def impostors(self) -> Floats:
        """(n, k) scores of the results of other labels, `_NONE` elsewhere."""
        return np.where(self.is_own, _NONE, self.scores)

    def trials(self) -> Trials:
        """Trials to choose a threshold by: found mates, and answers to queries whose label is taken out."""
        none, no_codes = np.empty(0), np.empty(0, np.uint32)
        mates = np.where(self.is_own, self.scores, _NONE).max(axis=1)
        # The next other result scores no more than the last one.
        strangers = np.where(self.is_full_of_own, self.scores[:, -1], self.impostors.max(axis=1))
        is_known = (self.codes < len(self.names)) & (self.scores > _NONE)
        with_mate, without = is_known & self.has_mate[:, None], is_known & ~self.is_own
        rows = [np.nonzero(part)[0] for part in (with_mate, without)]
        own = self.own.astype(np.uint32)
        return Trials(
            mate_scores=none,
            non_mate_scores=none,
            best_mate_scores=mates[self.has_mate],
            best_scores_without_mate=np.maximum(strangers, _NONE),
            answer_scores=np.concatenate([self.scores[with_mate], self.scores[without]]),
            answer_is_mate=np.concatenate([self.is_own[with_mate], np.zeros(len(rows[1]), bool)]),
            answer_has_mate=np.arange(sum(map(len, rows))) < len(rows[0]),
            n_searches=(int(self.has_mate.sum()), len(self.own)),
            labels=TrialLabels(
                names=self.names,
                mates=no_codes,
                non_mate_queries=no_codes,
                non_mate_items=no_codes,
                best_mates=own[self.has_mate],
                without_mate=own,
                answers=own[np.concatenate(rows)],
            ),
        )

    @property
    def share_inverted(self) -> tuple[float, int]:
        """Share of the queries whose own results rank below their other ones, and how many have both."""
        is_other = ~self.is_own & (self.scores > _NONE)
        n_own, n_other = self.is_own.sum(axis=1), is_other.sum(axis=1)
        has_both = (n_own > 0) & (n_other > 0)
        own, other = (
            np.where(flags, self.scores, 0.0).sum(axis=1)[has_both] / n[has_both]
            for flags, n in ((self.is_own, n_own), (is_other, n_other))
        )
        n = int(has_both.sum())
        return float((own < other).sum() / max(n, 1)), n

    def require_upright(self) -> None:
        """Refuse what must be distances."""
        share, n = self.share_inverted
        if share >= _INVERTED and n >= _LEAST_QUERIES:
            raise CalibrationError(
                f"of {n:,} queries, {share:.0%} have results of their own label that score lower than the "
                f"others: {_TURN}"
            )

    def impostor_effect(self, threshold: float) -> float:
        """Factor by which labels vary more as queries and impostors than as queries alone."""
        order = np.argsort(-self.impostors, axis=1, kind="stable")
        scores = np.take_along_axis(self.impostors, order, axis=1)
        codes = np.take_along_axis(self.codes, order, axis=1)
        return impostor_label_effect(scores, codes, self.own, threshold)

    def warnings(self) -> Iterator[str]:
        """Warnings of what could make the rates wrong."""
        n_full, (share, n) = int(self.is_full_of_own.sum()), self.share_inverted
        if n_full:
            yield (
                f"{n_full:,} of {len(self.own):,} queries have results of their own label only: FPIR is at "
                "most what is stated; ask the search for more results"
            )
        if share > 0.5:
            yield f"of {n:,} queries, {share:.0%} have results of their own label below the others: {_TURN}"
        if not self.is_own.any():
            yield "no query's label is among the labels of its results: nothing is found"


def _is_missing(label: Any) -> bool:
    # Tables write NaN where a text is missing.
    return label is None or label != label
