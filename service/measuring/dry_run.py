"""Dry run: what another threshold would change, on the scores that a calibration has stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from pydantic import Field, StrictFloat, model_validator

from vicinal.calibration import Target
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.label_counts import RateName
from vicinal.service.errors import RequestError
from vicinal.service.measuring.evidence import RateEvidence, rate_evidence
from vicinal.service.measuring.matcher import GalleryThresholds
from vicinal.service.measuring.records.record import CalibrationRecord, StoredScores
from vicinal.service.search.pipeline import Pipeline

SearchKind = Literal["searches", "with_mate", "without_mate"]


class TriedThreshold(Frozen):
    """A threshold to try: exactly one of the three."""

    threshold: StrictFloat | None = Field(None, ge=0.0, le=1.0, description="A score.")
    calibration: str | None = Field(None, description="Id of another calibration of the pipeline.")
    target: str | None = Field(None, description="A target, such as `fpir=1%`.")

    @model_validator(mode="after")
    def _exactly_one(self) -> TriedThreshold:
        given = (self.threshold, self.calibration, self.target)
        if sum(one is not None for one in given) != 1:
            raise ValueError("give exactly one of threshold, calibration and target")
        return self


class RatesAt(Frozen):
    """Rates at one threshold, measured on stored scores.

    Attributes:
        calibration: Record that it comes from; None for one that is only tried.
        rates: By name, with intervals; those without trials are left out.
        not_stored: Rates that the stored scores cannot count at this threshold.
    """

    threshold: float
    calibration: str | None
    target: str | None
    rates: dict[str, RateEvidence]
    not_stored: tuple[str, ...]


class Flips(Frozen):
    """Searches whose answer would change.

    Attributes:
        to_match: Those without a match now that would get one.
        to_no_match: Those that would lose all.
    """

    n: int
    to_match: int
    to_no_match: int


class DryRunResult(Frozen):
    """A tried threshold beside the one in force, on the same scores.

    Attributes:
        scores_of: The calibration whose stored scores were counted.
        current: The threshold in force; None when there is none.
        flips: Of all `searches`, by any match; of those `with_mate`, by a match with a mate; of those
            `without_mate`, by any match. Empty when there is no threshold in force.
    """

    pipeline: str
    scores_of: str
    version: int
    n_items: int
    current: RatesAt | None
    tried: RatesAt
    flips: dict[SearchKind, Flips]
    warnings: tuple[str, ...]


def dry_run(thresholds: GalleryThresholds, pipeline: Pipeline, tried: TriedThreshold) -> DryRunResult:
    """Try a threshold beside the one in force; nothing is changed."""
    record = None if tried.calibration is None else thresholds.records.find(tried.calibration)
    if record is not None:
        thresholds.require_usable(record)
        pipeline = record.pipeline
    in_force = thresholds.records.active(pipeline)
    # A threshold of another form of group score means nothing for these scores.
    if in_force is not None and (
        in_force.pipeline.key != pipeline.key or thresholds.of_record(in_force).value is None
    ):
        in_force = None
    source, scores = _with_scores(thresholds, pipeline, [in_force, record])
    target = None if tried.target is None else Target.parse(tried.target)
    if record is not None:
        threshold, target = record.threshold, record.target
    elif target is not None:
        chosen = source.evidence and source.evidence.chosen
        threshold = scores.choose_threshold(target, chosen.starting if chosen else None)
    else:
        threshold = tried.threshold or 0.0
    current = None if in_force is None else _rates_at(scores, in_force.threshold, in_force, in_force.target)
    stale = thresholds.of_record(source).reason
    return DryRunResult(
        pipeline=pipeline.key,
        scores_of=source.id,
        version=source.version,
        n_items=source.n_items,
        current=current,
        tried=_rates_at(scores, threshold, record, target),
        flips={} if current is None else _flips(scores, current.threshold, threshold),
        warnings=(*([stale] if stale else []), *source.warnings),
    )


def _with_scores(
    thresholds: GalleryThresholds, pipeline: Pipeline, preferred: list[CalibrationRecord | None]
) -> tuple[CalibrationRecord, StoredScores]:
    """The first of these records with scores, or else the newest of the pipeline."""
    newest = (one for one in thresholds.records.history() if one.pipeline.key == pipeline.key)
    for record in (*preferred, *newest):
        if record is None or thresholds.of_record(record).value is None:
            continue
        scores = thresholds.records.scores(record)
        if scores is not None:
            return record, scores
    has_labels = thresholds.view.snapshot.manifest.n_labels
    raise RequestError(
        f"no calibration of gallery '{thresholds.gallery.name}' for '{pipeline.key}' has stored scores: "
        f"{'calibrate first' if has_labels else 'these come with one by labels, which it has none of'}"
    )


def _rates_at(
    scores: StoredScores, threshold: float, record: CalibrationRecord | None, target: Target | None
) -> RatesAt:
    names: tuple[RateName, ...] = get_args(RateName)
    counts = {name: scores.counts(name, threshold) for name in names}
    return RatesAt(
        threshold=threshold,
        calibration=None if record is None else record.id,
        target=None if target is None else str(target),
        rates={name: rate_evidence(one, is_ratio=name == "precision") for name, one in counts.items() if one},
        not_stored=tuple(name for name in names if not scores.covers(name, threshold)),
    )


def _flips(scores: StoredScores, current: float, tried: float) -> dict[SearchKind, Flips]:
    kinds: Mapping[SearchKind, np.ndarray] = {
        "searches": scores.top_scores,
        "with_mate": scores.trials["fnir"].scores,
        "without_mate": scores.trials["fpir"].scores,
    }
    return {
        kind: Flips(
            n=len(found),
            to_match=int(((found < current) & (found >= tried)).sum()),
            to_no_match=int(((found >= current) & (found < tried)).sum()),
        )
        for kind, found in kinds.items()
    }
