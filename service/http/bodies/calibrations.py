"""Request and response bodies of the calls about calibrations."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from vicinal.service.calibrator.curves import CalibrationDetails
from vicinal.service.tasks.calibrate import CalibrationOptions, PipelineChoice
from vicinal.service.thresholds.activations import ActivationEvent
from vicinal.service.thresholds.drift import DriftState
from vicinal.service.thresholds.dry_run import Candidate
from vicinal.service.thresholds.store import CalibrationRecord, Rates

__all__ = [
    "CalibrationHistoryBody",
    "CalibrationStart",
    "CalibrationStateBody",
    "CalibrationSummaryBody",
    "DryRun",
    "ReportBody",
    "ThresholdByHand",
]


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class CalibrationStart(CalibrationOptions):
    """What to calibrate; with queries from a source, as embeddings with labels, or from the gallery."""

    queries: str | None = Field(
        None,
        description="Labelled queries below `sources_dir`: folder of class folders, manifest with the "
        "columns path and label, or `.npz` file with the arrays embeddings and labels. Without: every "
        "labelled item is left out once.",
    )
    embeddings: list[list[float]] | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: list[str] | None = Field(
        None, description="Label of each embedding; one that the gallery lacks makes a query without a mate."
    )


class ThresholdByHand(PipelineChoice):
    """A threshold that somebody chose; no rate is claimed for it."""

    threshold: float = Field(ge=0.0, le=1.0, description="Lowest accepted score.")


class DryRun(PipelineChoice, Candidate):
    """A threshold to try on stored scores, by exactly one of threshold, calibration and target."""


class CalibrationSummaryBody(_Response):
    """One record of the history."""

    id: str
    created_at: datetime
    source: Literal["leave_one_out", "queries", "by_hand"]
    target: str | None
    threshold: float
    rates: Rates | None = Field(description="Null for a threshold set by hand.")
    pipeline: str
    version: int
    n_items: int
    is_active: bool = Field(description="Whether searches with its pipeline use it.")


class CalibrationHistoryBody(_Response):
    """Records of a gallery, newest first, and what was in force when."""

    calibrations: list[CalibrationSummaryBody]
    activations: list[ActivationEvent] = Field(description="Oldest first.")


class CalibrationStateBody(_Response):
    """One record, and how it stands to the gallery as it is."""

    record: CalibrationRecord
    is_active: bool = Field(description="Whether searches with its pipeline use it.")
    active_since: datetime | None
    state: Literal["true", "stale", "none"] = Field(
        description="What answers decided by it say; `none`: set by hand, or of another bundle or gallery."
    )
    reason: str | None = Field(description="Why the state is not `true`.")


class ReportBody(CalibrationStateBody):
    """All that is known of one calibration."""

    verdict: str = Field(description="What it promises, on how little, and what it says nothing of.")
    drift: DriftState
    details: CalibrationDetails | None = Field(
        description="Curves, histograms, utilities of all classes and the worst examples; null where "
        "none are kept."
    )
    curve: dict[str, list[float | None]] = Field(
        description="Rates over thresholds, from the stored scores; empty where there are none. Null where a "
        "rate was not measured, or its scores were not kept."
    )
