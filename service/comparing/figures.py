"""Figures of a comparison: what variants found for the same queries, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

import numpy as np

from vicinal.calibration import CalibrationError, LabelCounts, Target, choose_threshold
from vicinal.calibration.arrays import Floats, Ints, Mask, Objects
from vicinal.calibration.label_codes import label_codes
from vicinal.calibration.rates.average_precision import average_precisions
from vicinal.calibration.rates.paired_bootstrap import (
    Figure,
    LabelDraws,
    Searches,
    mean_figure,
    paired_interval,
    variance_figure,
)
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.comparing.record import (
    ComparedFlips,
    FigureName,
    PairedFigure,
    asked_error,
)
from vicinal.service.measuring.evidence import SpaceOpis, rate_evidence
from vicinal.service.measuring.measurement import Measurement


@dataclass(frozen=True)
class Answers:
    """Best item of each query, (Q,) each: id and label are None, and the score -inf, without any."""

    ids: Objects
    labels: Objects
    scores: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, positions: Ints, scores: Floats) -> Answers:
        """Answers by positions of the best items, -1 for none."""
        found = positions >= 0
        ids = np.asarray(snapshot.item_table["id"].to_numpy(zero_copy_only=False), dtype=object)[positions]
        labels = snapshot.labels[positions]
        ids[~found], labels[~found] = None, None
        return cls(ids, labels, np.where(found, scores, -np.inf))


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a variant, (Q,) each; precisions are average ones over as many items as there are mates. A
    threshold decides its searches, another `holds` the target on these queries; None where none does.
    """

    answers: Answers
    has_mate: Mask
    mate_scores: Floats
    hits: Floats
    precisions: Floats
    has_none: Mask
    other_scores: Floats
    opis: SpaceOpis | None
    threshold: float | None
    holds: float | None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        measured: Measurement,
        opis: SpaceOpis | None,
        *,
        threshold: float | None,
        target: Target | None,
    ) -> Outcomes:
        """Outcomes of scored queries."""
        n, rows = len(measured.codes), measured.without.queries
        has_none, others = np.zeros(n, np.bool_), np.zeros(n)
        has_none[rows], others[rows] = True, measured.trials.best_scores_without_mate
        is_mate = measured.items.labels == measured.codes[:, None]
        holds = None
        if target is not None:
            with suppress(CalibrationError):
                holds = choose_threshold(measured.trials, target)
        n_mates = np.bincount(measured.pairs.mate_queries, minlength=n)
        return cls(
            answers=Answers.of(snapshot, measured.found.best_items, measured.top_scores),
            has_mate=measured.mates.has_mate,
            mate_scores=measured.mates.best_scores,
            hits=measured.hits.astype(np.float64),
            precisions=average_precisions(is_mate, n_mates),
            has_none=has_none,
            other_scores=others,
            opis=opis,
            threshold=threshold,
            holds=holds,
        )


class ComparedSearches:
    """Outcomes of variants on the same queries, the present one first; `mates` have a mate in each."""

    def __init__(
        self, outcomes: Sequence[Outcomes], labels: Objects, target: Target | None, seed: int
    ) -> None:
        self.target, self._outcomes = target, outcomes
        names, self._codes = label_codes(map(str, labels))
        self.mates = np.logical_and.reduce([one.has_mate for one in outcomes])
        self._others = np.logical_and.reduce([one.has_none for one in outcomes])
        utilities = [one.opis.utilities.labels for one in outcomes if one.opis]
        # Labels that have a utility in every variant that decides item by item.
        self._classes = reduce(np.intersect1d, utilities, names)
        self._class_codes = np.searchsorted(names, self._classes)
        self._figures = [self._figures_of(one) for one in outcomes] if self.mates.any() else []
        self._draws = LabelDraws(self._codes[self.mates], self._codes[self._others], seed)

    def figures(self) -> list[dict[FigureName, PairedFigure]]:
        """All figures of each variant."""
        found: list[dict[FigureName, PairedFigure]] = []
        present: dict[FigureName, tuple[float, Floats]] = {}
        for number, figures in enumerate(self._figures):
            functions = list(figures.values())
            measured, drawn = self._draws.measured(functions), self._draws.drawn(functions)
            known = dict(zip(figures, zip(measured.tolist(), drawn, strict=True), strict=True))
            present = present if number else known
            found.append({name: self._paired(name, one, present.get(name)) for name, one in known.items()})
        return found

    def _paired(
        self, name: FigureName, one: tuple[float, Floats], present: tuple[float, Floats] | None
    ) -> PairedFigure:
        if present is None:
            return PairedFigure(value=one[0])
        low, high = paired_interval(present[1], one[1])
        # Labels drawn twice make a drawn variance too small in the mean; that is given back.
        scale = len(self._classes) / (len(self._classes) - 1) if name == "opis" else 1.0
        return PairedFigure(value=one[0], difference=one[0] - present[0], low=scale * low, high=scale * high)

    def _figures_of(self, one: Outcomes) -> dict[FigureName, Figure]:
        codes, others, searches = self._codes[self.mates], self._codes[self._others], self._searches(one)
        found: dict[FigureName, Figure] = {
            "hit_rate": mean_figure(one.hits[self.mates], codes),
            "map_at_r": mean_figure(one.precisions[self.mates], codes),
        }
        if one.threshold is not None:
            found["fnir"] = searches.fnir(one.threshold)
        if len(others):
            found["auroc"] = searches.auroc
            if one.threshold is not None:
                found["fpir"] = searches.fpir(one.threshold)
            if one.holds is not None:
                found["error"] = self._error(searches, one.holds)
        if one.opis is not None and len(self._classes) > 1:
            rows = np.intersect1d(one.opis.utilities.labels, self._classes, return_indices=True)[1]
            found["opis"] = variance_figure(one.opis.utilities.utilities[rows], self._class_codes)
        return found

    def _searches(self, one: Outcomes) -> Searches:
        codes, others = self._codes[self.mates], self._codes[self._others]
        return Searches(one.mate_scores[self.mates], codes, one.other_scores[self._others], others)

    def _error(self, searches: Searches, holds: float) -> Figure:
        target = self.target
        if target is not None and (target.rate == "fpir" or target.rate == "fnir"):
            return searches.error_when_held(target.rate, target.value)
        return searches.fpir(holds) if asked_error(target) == "fpir" else searches.fnir(holds)


def count_flips(
    before: Answers, after: Answers, labels: Objects, thresholds: tuple[float, float]
) -> ComparedFlips:
    """Count the queries that two variants decide otherwise; one without a label is alone."""
    was, is_match = before.scores >= thresholds[0], after.scores >= thresholds[1]
    other = was & is_match & (before.ids != after.ids)
    # Two photos of one thing are the same answer; without labels nobody can tell.
    same_thing = (before.labels == after.labels) & np.array(
        [label is not None for label in after.labels], dtype=bool
    )
    other_label = other & ~same_thing
    flipped = (was != is_match) | other_label
    names = [f"query {i}" if one is None else f"label {one}" for i, one in enumerate(labels)]
    counts = LabelCounts.of(flipped, label_codes(names)[1].astype(np.uint32))
    if counts is None:
        raise CalibrationError("no query was searched for in both variants: give at least one")
    return ComparedFlips(
        n=len(labels),
        to_match=int((~was & is_match).sum()),
        to_no_match=int((was & ~is_match).sum()),
        other_best=int(other.sum()),
        other_label=int(other_label.sum()),
        flipped=rate_evidence(counts),
    )
