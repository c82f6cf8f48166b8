"""Calibration report: all that is known of one calibration, as JSON."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from pydantic import BaseModel, Field

from vicinal.calibration.rates.label_counts import RateName
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.measuring.drift import DriftState
from vicinal.service.measuring.evidence import StatedRate
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import (
    CalibrationRecord,
    CalibrationSource,
    Rates,
    promised_range,
)
from vicinal.service.measuring.records.store import ActivationEvent
from vicinal.service.reports.promise import tried_promise
from vicinal.service.search.answers import CalibrationState

# Sentences of a promise before this one state what to expect.
_BASIS = "This rests on "
_SUMMED_UP: tuple[RateName, ...] = ("fpir", "fnir")


class CalibrationSummaryBody(BaseModel, frozen=True):
    """Record of the history."""

    id: str
    created_at: datetime
    source: CalibrationSource
    target: str | None
    threshold: float
    rates: Rates | None = Field(description="Null for a threshold set by hand.")
    promised: dict[str, StatedRate] = Field(
        description="FPIR and FNIR, where they were measured, with the 95 % range of photos of another day."
    )
    pipeline: str
    bundle: str = Field(description="Fingerprint of the bundle: scores of two bundles cannot be compared.")
    version: int
    n_items: int
    is_active: bool = Field(description="Whether searches with its pipeline use it.")
    state: CalibrationState | None = Field(
        description="What answers decided by it say; null where it is not in force."
    )
    reason: str | None = Field(description="Why the state is not `current`.")


class CalibrationHistoryBody(BaseModel, frozen=True):
    """Records of a gallery, newest first, and what was in force when."""

    calibrations: list[CalibrationSummaryBody]
    activations: list[ActivationEvent] = Field(description="Oldest first.")


class CalibrationStateBody(BaseModel, frozen=True):
    """Record, and how it stands to the gallery as it is."""

    record: CalibrationRecord
    is_active: bool = Field(description="Whether searches with its pipeline use it.")
    active_since: datetime | None
    state: CalibrationState = Field(
        description="What answers decided by it say; `none`: it is of another bundle or gallery."
    )
    reason: str | None = Field(description="Why the state is not `current`.")
    last_check: PromiseCheck | None = Field(
        description="Whether what it promised held for new photos, when that was tried last."
    )

    @property
    def broken(self) -> str | None:
        """Proof that its promise does not hold; None where nothing speaks against it."""
        return self.reason if self.state == "broken" else None


class ReportBody(CalibrationStateBody):
    """All that is known of one calibration."""

    verdict: str = Field(description="What it lets expect, in plain words.")
    basis: str = Field(description="What that rests on; empty where nothing is expected.")
    drift: DriftState
    details: CalibrationCurves | None = Field(
        description="Histograms, utilities of all classes and the worst examples; null where none are kept."
    )


def describe_history(matcher: Matcher) -> CalibrationHistoryBody:
    """All records of a gallery."""
    store = matcher.calibrations
    active = store.in_force()
    return CalibrationHistoryBody(
        calibrations=[_summary(matcher, record, record.id in active) for record in store.history()],
        activations=store.activations.events(),
    )


def _summary(matcher: Matcher, record: CalibrationRecord, is_active: bool) -> CalibrationSummaryBody:
    standing = matcher.thresholds.of_record(record) if is_active else None
    ranges = {name: promised_range(record, name) for name in _SUMMED_UP}
    return CalibrationSummaryBody.model_validate(
        {
            **dict(record),
            "target": str(record.target) if record.target else None,
            "promised": {name: StatedRate.of(one) for name, one in ranges.items() if one is not None},
            "pipeline": record.pipeline.key,
            "is_active": is_active,
            "state": standing and standing.state,
            "reason": standing and standing.reason,
        }
    )


def describe_record(matcher: Matcher, record: CalibrationRecord) -> CalibrationStateBody:
    """A record, and how it stands to the gallery as it is."""
    activation = matcher.calibrations.activation(record.pipeline)
    is_active = activation is not None and activation.calibration == record.id
    standing, check = matcher.thresholds.of_record(record), None
    # The state says what a damaged one means.
    with suppress(CalibrationRecordError):
        check = matcher.calibrations.last_check(record)
    return CalibrationStateBody(
        record=record,
        is_active=is_active,
        active_since=activation.at if activation is not None and is_active else None,
        state=standing.state,
        reason=standing.reason,
        last_check=check,
    )


def say_promise(matcher: Matcher) -> tuple[str, ...]:
    """Sentences on what to expect of the threshold of searches without further options, the first on all
    rates or on what a check found broken; none where nothing is promised.
    """
    record = matcher.calibrations.active(matcher.pipeline)
    if record is None or matcher.thresholds.of_record(record).value is None:
        return ()
    found = describe_record(matcher, record)
    return tried_promise(record, found.last_check, matcher.embedder.bundle.manifest.noun, found.broken)


def report_record(matcher: Matcher, record: CalibrationRecord, drift: DriftState) -> ReportBody:
    """All that is known of a record."""
    bundle = matcher.embedder.bundle.manifest
    described = describe_record(matcher, record)
    said = tried_promise(record, described.last_check, bundle.noun, described.broken)
    bases = (place for place, sentence in enumerate(said) if sentence.startswith(_BASIS))
    n_first = 1 if described.broken else next(bases, len(said))
    return ReportBody(
        **dict(described),
        verdict=" ".join(said[:n_first]),
        basis=" ".join(said[n_first:]),
        drift=drift,
        details=matcher.calibrations.curves(record),
    )
