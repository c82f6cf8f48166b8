"""Request bodies of the calls about calibrations."""

from __future__ import annotations

from pydantic import Field, StrictFloat

from vicinal.service.http.bodies.fields import Labels, Vectors
from vicinal.service.measuring.dry_run import TriedThreshold
from vicinal.service.measuring.options import CalibrationOptions, PipelineChoice, QuerySourceOptions


class CalibrationStart(CalibrationOptions, QuerySourceOptions):
    """What to calibrate; with queries from a source, as embeddings with labels, or from the gallery."""

    queries: str | None = Field(
        None,
        description="Labelled queries, of any source that a re-index takes, or embeddings with labels. "
        "Without: every labelled item is left out once.",
    )
    embeddings: Vectors | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks makes a query without a mate."
    )


class CheckStart(QuerySourceOptions):
    """New labelled queries to try a calibration's promise with: from a source, or embeddings with labels."""

    queries: str | None = Field(
        None,
        description="New labelled queries, of any source that a re-index takes, or embeddings with labels.",
    )
    embeddings: Vectors | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks is a thing that is not there."
    )


class ThresholdByHand(PipelineChoice):
    """A threshold that somebody chose; no rate is claimed for it."""

    threshold: StrictFloat = Field(ge=0.0, le=1.0, description="Lowest accepted score.")


class DryRun(PipelineChoice, TriedThreshold):
    """A threshold to try on stored scores, by exactly one of threshold, calibration and target."""
