"""Comparison figures: what two versions found for the same queries, as figures with intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError, LabelCounts
from vicinal.calibration.rates.paired_bootstrap import (
    PairedDifference,
    paired_difference,
    paired_variance_difference,
)
from vicinal.calibration.trials import Codes
from vicinal.service.calibrator.evidence import SpaceOpis, rate_evidence
from vicinal.service.comparisons.compared_version import QueryOutcomes
from vicinal.service.comparisons.version_record import FlippedDecisions, OpisFigure, PairedFigure
from vicinal.service.comparisons.version_sample import ComparisonSample

__all__ = ["count_flips", "fnir_figure", "opis_figure", "retrieval_figures"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Thresholds = tuple[float, float]


def retrieval_figures(
    old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample, seed: int
) -> tuple[PairedFigure | None, PairedFigure | None]:
    """Hit rate and MAP@R over the queries that have a label and a mate in both versions; None without any.

    Args:
        old: What the active version found for the sample.
        new: What the candidate found.
        sample: The items that were searched for.
        seed: Seed of the bootstrap.
    """
    counts = _with_mates(old, new, sample)
    if not counts.any():
        return None, None
    codes = sample.label_codes[counts]
    hits = [one.hits(sample.new_labels)[counts] for one in (old, new)]
    precisions = [one.average_precisions[counts] for one in (old, new)]
    rate, mean = (
        _figure(paired_difference(before, after, codes, seed=seed), int(counts.sum()))
        for before, after in (hits, precisions)
    )
    return rate, mean


def fnir_figure(
    old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample, thresholds: Thresholds, seed: int
) -> PairedFigure | None:
    """Share of queries with a mate of which none reaches the threshold, each version at its own.

    Args:
        old: What the active version found for the sample.
        new: What the candidate found.
        sample: The items that were searched for.
        thresholds: Threshold of the active version, and of the candidate.
        seed: Seed of the bootstrap.
    """
    counts = _with_mates(old, new, sample)
    if not counts.any():
        return None
    before, after = (
        (one.mate_scores[counts] < threshold).astype(np.float64)
        for one, threshold in zip((old, new), thresholds, strict=True)
    )
    found = paired_difference(before, after, sample.label_codes[counts], seed=seed)
    return _figure(found, int(counts.sum()))


def opis_figure(old: SpaceOpis, new: SpaceOpis, seed: int) -> OpisFigure | None:
    """OPIS of both over the classes that have one in both; None with fewer than two.

    Args:
        old: OPIS of the active version, on the sample.
        new: OPIS of the candidate.
        seed: Seed of the bootstrap.
    """
    names, rows, others = np.intersect1d(
        old.utilities.labels.astype(np.str_), new.utilities.labels.astype(np.str_), return_indices=True
    )
    if len(names) < 2:
        return None
    found = paired_variance_difference(
        old.utilities.utilities[rows], new.utilities.utilities[others], seed=seed
    )
    return OpisFigure(
        **_figure(found, 0).model_dump(), old_floor=old.evidence.floor, new_floor=new.evidence.floor
    )


def count_flips(
    old: QueryOutcomes, new: QueryOutcomes, codes: Codes, thresholds: Thresholds
) -> FlippedDecisions:
    """Count the queries that two versions decide otherwise.

    Args:
        old: What the active version found.
        new: What the candidate found; the same queries.
        codes: (Q,) number of each query's label.
        thresholds: Threshold of the active version, and of the candidate.

    Raises:
        CalibrationError: There are no queries.
    """
    before, after = old.scores >= thresholds[0], new.scores >= thresholds[1]
    other = before & after & (old.best != new.best)
    # Two photos of one thing are the same answer; without labels nobody can tell.
    same_thing = (old.best_labels == new.best_labels) & np.array(
        [label is not None for label in new.best_labels], dtype=bool
    )
    other_label = other & ~same_thing
    flipped = (before != after) | other_label
    counts = LabelCounts.of(flipped, codes)
    if counts is None:
        raise CalibrationError("no query was searched for in both versions: give at least one")
    return FlippedDecisions(
        n=len(codes),
        to_match=int((~before & after).sum()),
        to_no_match=int((before & ~after).sum()),
        other_best=int(other.sum()),
        other_label=int(other_label.sum()),
        flipped=rate_evidence(counts),
    )


def _with_mates(old: QueryOutcomes, new: QueryOutcomes, sample: ComparisonSample) -> Bools:
    return sample.is_labelled & (old.n_mates > 0) & (new.n_mates > 0)


def _figure(found: PairedDifference, n_queries: int) -> PairedFigure:
    return PairedFigure(
        old=found.old,
        new=found.new,
        difference=found.difference,
        low=found.low,
        high=found.high,
        n_queries=n_queries,
        n_labels=found.n_labels,
    )
