"""Calibration control: puts thresholds in force, sets them by hand, and tries others before that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from vicinal.calibration import Target
from vicinal.calibration.rates.label_counts import RateName
from vicinal.service.calibrator.evidence import RateEvidence, rate_evidence
from vicinal.service.calibrator.stored_scores import StoredScores
from vicinal.service.errors import CalibrationMismatchError, RequestError
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import Pipeline
from vicinal.service.thresholds.store import CalibrationRecord, new_calibration_id

__all__ = [
    "Candidate",
    "Comparison",
    "Flips",
    "RatesAt",
    "activate_record",
    "compare_thresholds",
    "set_threshold",
]

SearchKind = Literal["searches", "with_mate", "without_mate"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Candidate(_Frozen):
    """A threshold to try: exactly one of the three."""

    threshold: float | None = Field(None, ge=0.0, le=1.0, description="A score.")
    calibration: str | None = Field(None, description="Id of another calibration of the pipeline.")
    target: str | None = Field(None, description="A target, such as `fpir=1%`.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Candidate:
        given = (self.threshold, self.calibration, self.target)
        if sum(one is not None for one in given) != 1:
            raise ValueError("give exactly one of threshold, calibration and target")
        return self


class RatesAt(_Frozen):
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


class Flips(_Frozen):
    """Searches whose answer would change.

    Attributes:
        n: All searches.
        to_match: Those without a match now that would get one.
        to_no_match: Those that would lose all.
    """

    n: int
    to_match: int
    to_no_match: int


class Comparison(_Frozen):
    """A candidate threshold beside the one in force, on the same scores.

    Attributes:
        scores_of: The calibration whose stored scores were counted.
        current: The threshold in force; None when there is none.
        flips: Of all `searches`, by any match; of those `with_mate`, by a match with a mate; of those
            `without_mate`, by any match. Empty when there is no threshold in force.
        warnings: What makes the comparison worth less.
    """

    pipeline: str
    scores_of: str
    version: int
    n_items: int
    current: RatesAt | None
    candidate: RatesAt
    flips: dict[SearchKind, Flips]
    warnings: tuple[str, ...]


def activate_record(matcher: Matcher, record_id: str) -> CalibrationRecord:
    """Let searches with the record's pipeline use it from their next request on.

    Raises:
        CalibrationNotFoundError: There is none of this id.
        CalibrationMismatchError: It was made for another bundle or gallery, so that no search could use it.
    """
    record = matcher.calibrations.find(record_id)
    found = matcher.threshold_of(record)
    if found.value is None:
        raise CalibrationMismatchError(found.reason or "it cannot be used")
    matcher.calibrations.activate(record)
    return record


def set_threshold(matcher: Matcher, pipeline: Pipeline, threshold: float) -> CalibrationRecord:
    """Put a threshold in force that somebody chose; no rate is claimed for it.

    Raises:
        RequestError: It is no score.
    """
    if not 0.0 <= threshold <= 1.0:
        raise RequestError(f"threshold is {threshold}, expected a score between 0 and 1")
    manifest = matcher.snapshot.manifest
    record = CalibrationRecord(
        format_version=2,
        id=new_calibration_id(),
        created_at=datetime.now(UTC),
        source="by_hand",
        target=None,
        threshold=threshold,
        rates=None,
        pipeline=pipeline,
        bundle=manifest.bundle,
        version=manifest.version,
        n_items=manifest.n_items,
        warnings=("set by hand: no rate was measured",),
    )
    return matcher.calibrations.add(record)


def compare_thresholds(matcher: Matcher, pipeline: Pipeline, candidate: Candidate) -> Comparison:
    """Compare a candidate with the threshold in force; nothing is changed.

    Args:
        matcher: The gallery as it is.
        pipeline: The pipeline whose threshold it is about; a candidate's calibration names its own.
        candidate: What to try.

    Raises:
        CalibrationNotFoundError: There is no such calibration.
        CalibrationMismatchError: It is of another bundle or gallery.
        CalibrationError: The target cannot be reached.
        RequestError: No calibration of the pipeline has stored scores.
    """
    store = matcher.calibrations
    record = None if candidate.calibration is None else store.find(candidate.calibration)
    if record is not None:
        pipeline = record.pipeline
        if (refusal := matcher.threshold_of(record)).value is None:
            raise CalibrationMismatchError(refusal.reason or "it cannot be used")
    in_force = store.active(pipeline)
    if in_force is not None and matcher.threshold_of(in_force).value is None:
        in_force = None
    source, scores = _with_scores(matcher, pipeline, [in_force, record])
    threshold, target = candidate.threshold, None
    if record is not None:
        threshold, target = record.threshold, record.target
    elif candidate.target is not None:
        target = Target.parse(candidate.target)
        threshold = scores.choose_threshold(target)
    if threshold is None:
        raise RequestError("give exactly one of threshold, calibration and target")
    current = None if in_force is None else _rates_at(scores, in_force.threshold, in_force, in_force.target)
    return Comparison(
        pipeline=pipeline.key,
        scores_of=source.id,
        version=source.version,
        n_items=source.n_items,
        current=current,
        candidate=_rates_at(scores, threshold, record, target),
        flips={} if current is None else _flips(scores, current.threshold, threshold),
        warnings=_warnings(matcher, source),
    )


def _with_scores(
    matcher: Matcher, pipeline: Pipeline, preferred: list[CalibrationRecord | None]
) -> tuple[CalibrationRecord, StoredScores]:
    """The first of these records with scores, or else the newest of the pipeline."""
    newest = (one for one in matcher.calibrations.history() if one.pipeline.key == pipeline.key)
    for record in (*preferred, *newest):
        if record is None or matcher.threshold_of(record).value is None:
            continue
        scores = matcher.calibrations.scores(record)
        if scores is not None:
            return record, scores
    raise RequestError(
        f"no calibration of gallery '{matcher.gallery.name}' for '{pipeline.key}' has stored scores: "
        "calibrate first"
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


def _flips(scores: StoredScores, current: float, candidate: float) -> dict[SearchKind, Flips]:
    kinds: Mapping[SearchKind, np.ndarray] = {
        "searches": scores.top_scores,
        "with_mate": scores.trials["fnir"].scores,
        "without_mate": scores.trials["fpir"].scores,
    }
    return {
        kind: Flips(
            n=len(found),
            to_match=int(((found < current) & (found >= candidate)).sum()),
            to_no_match=int(((found >= current) & (found < candidate)).sum()),
        )
        for kind, found in kinds.items()
    }


def _warnings(matcher: Matcher, source: CalibrationRecord) -> tuple[str, ...]:
    stale = matcher.threshold_of(source).reason
    return (*([stale] if stale else []), *source.warnings)
