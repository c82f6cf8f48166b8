"""Threshold: what decides a search; `service.measuring.matcher` picks it among a gallery's calibrations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field

from vicinal.indexer.views.selection import Selection
from vicinal.service.errors import RequestError
from vicinal.service.search.pipeline import Pipeline

CalibrationState = Literal["current", "stale", "broken", "default", "by_hand", "none"]


@dataclass(frozen=True)
class Threshold:
    """What an answer was decided by."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    value: Annotated[
        float | None,
        Field(description="Lowest accepted score; null when there is no calibration and none was given."),
    ] = None
    source: Literal["calibration", "by_hand", "request", "bundle", "none"] = "none"
    target: Annotated[
        str | None, Field(description="The rate that the threshold holds, such as `FPIR 5 %`.")
    ] = None
    calibration: Annotated[str | None, Field(description="Id of the calibration record.")] = None
    state: Annotated[
        CalibrationState,
        Field(
            description="`current`: calibrated for this pipeline, bundle and gallery; `stale`: it was, but "
            "the gallery has changed; `broken`: new photos were tried, and what was promised does not hold; "
            "`default`: the bundle's own, which was not measured on this gallery; `by_hand`: somebody chose "
            "it, here or with the request; `none`: there is none."
        ),
    ] = "none"
    reason: Annotated[str | None, Field(description="Why the state is not `current`.")] = None
    note: Annotated[
        str | None,
        Field(
            description="What else to know of the rate: what a filter means for it, or that searches have "
            "drifted."
        ),
    ] = None
    drift: Annotated[
        Literal["strong"] | None,
        Field(
            description="`strong`: searches no longer look like the calibration's queries, so that its rates "
            "may not hold; the threshold still decides."
        ),
    ] = None
    # When the calibration was put in force; None where that is not known.
    since: Annotated[datetime | None, Field(exclude=True)] = None


class ThresholdsInForce(Protocol):
    """Threshold in force for each pipeline, on one state of a gallery."""

    def in_force(self, pipeline: Pipeline, selection: Selection | None = None) -> Threshold:
        """Threshold of a search that names none."""

    def with_form(self, pipeline: Pipeline, decided_by: Threshold | None = None) -> Pipeline:
        """A pipeline with the form of its group score, which comes with the calibration in force."""


def require_score(threshold: float) -> None:
    """Refuse a threshold that no score can be compared with."""
    if not 0.0 <= threshold <= 1.0:
        raise RequestError(f"threshold is {threshold}, expected a score between 0 and 1")
