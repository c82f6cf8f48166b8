"""Drawn searches: answered ones as labelled queries, beside the sample of searches that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.calibration.rates.answered_searches import TELLING, AnsweredSearches
from vicinal.calibration.targets import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.evidence import Evidence, StatedRate, UnsureBand
from vicinal.service.measuring.group_trials import own_scores_with_one_less
from vicinal.service.measuring.measurement import Measurement, top_scores
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Group
from vicinal.service.search.scorer import Scorer


@dataclass(frozen=True)
class SearchRows:
    """Kept searches: (n, d) embeddings, (n,) items that each is not to find, and (n,) best scores, NaN where
    these are not known for what is measured.
    """

    embeddings: FloatArray
    excluded: Sequence[Ints]
    scores: Floats

    def top_scores(self, snapshot: Snapshot, scorer: Scorer, group: Group | None) -> Floats:
        """(n,) best scores, those that are not known searched for."""
        found, is_new = self.scores.copy(), np.isnan(self.scores)
        # The form of a group's score may just have been chosen.
        if group != scorer.pipeline.group:
            is_new[:] = True
        excluded = [one for one, is_wanted in zip(self.excluded, is_new, strict=True) if is_wanted]
        rows = self.embeddings[is_new]
        found[is_new] = top_scores(snapshot, scorer, rows, group=group, excluded=excluded)
        return found


@dataclass(frozen=True)
class DrawnSearches:
    """Searches that were drawn and answered.

    Attributes:
        labelled: Those that a person could tell: with their label, or with one of their own where the gallery
            lacks what they show.
        others: Those that could not be told, and those that count in no rate.
        is_unsure: (n,) which of the others could not be told.
        sample: The random sample of all searches.
        n_again: Searches that were asked about twice, and answered.
        n_disagreed: Those of them that were answered differently.
        warnings: What was left out, or is told anew.
    """

    labelled: LabelledQueries
    others: SearchRows
    is_unsure: Mask
    sample: SearchRows
    n_again: int = 0
    n_disagreed: int = 0
    warnings: tuple[str, ...] = ()

    def scored(
        self, measured: Measurement, snapshot: Snapshot, scorer: Scorer, threshold: float | None
    ) -> AnsweredSearches:
        """The answers with scores, by what was `measured`; strata have an edge at the threshold."""
        n, known = len(measured.codes), measured.mates.has_mate
        others, sample = (
            rows.top_scores(snapshot, scorer, measured.group) for rows in (self.others, self.sample)
        )
        more = np.zeros(len(others), bool)
        left_out = () if self.labelled.left_out is None else self.labelled.left_out
        are_items = np.array([len(one) > 0 for one in left_out], bool)
        less = np.where(are_items, np.maximum(own_scores_with_one_less(measured), 0.0), np.nan)
        return AnsweredSearches(
            top_scores=np.concatenate([measured.top_scores, others]),
            mate_scores=np.concatenate([np.where(known, measured.mates.best_scores, 0.0), others]),
            is_known=np.concatenate([known, more]),
            is_absent=np.concatenate([~known, more]),
            is_unsure=np.concatenate([np.zeros(n, bool), self.is_unsure]),
            codes=np.concatenate(
                [measured.codes.astype(np.int64), len(measured.names) + np.arange(len(more))]
            ),
            sample_scores=sample,
            threshold=threshold,
            n_again=self.n_again,
            n_disagreed=self.n_disagreed,
            less_scores=np.concatenate([less, np.full(len(more), np.nan)]) if are_items.any() else None,
        )


def with_telling(
    evidence: Evidence, searches: AnsweredSearches, target: Target, threshold: float, before: float | None
) -> Evidence:
    """Evidence with the scores below a threshold at which the answers cannot tell the target from what they
    show, and what they show of the threshold `before`, if any.
    """
    if target.rate != "fpir" and target.rate != "fnir":
        return evidence
    lowest, band = searches.unsure_from(target.rate, threshold, target.value), None
    if lowest is not None:
        shares = [
            float(searches.weights[kind & (scores >= lowest) & (scores < threshold)].sum())
            / max(float(searches.weights[kind].sum()), 1e-300)
            for kind, scores in (
                (searches.is_known, searches.mate_scores),
                (searches.is_absent, searches.top_scores),
            )
        ]
        band = UnsureBand(lowest=lowest, known=shares[0], strangers=shares[1])
    told, one = evidence.searches, before and searches.interval(target.rate, before, TELLING)
    if told is not None and one:
        stated = StatedRate.of(one)
        told = told.model_copy(update={"before": before, "at_before": stated})
    return evidence.model_copy(update={"unsure": band, "searches": told})
