"""Request bodies of the calls about calibrations."""

from __future__ import annotations

from pydantic import Field, StrictFloat

from vicinal.service.http.bodies.fields import Labels, SentEmbeddings
from vicinal.service.measuring.dry_run import TriedThreshold
from vicinal.service.operations import calibrate, check
from vicinal.service.request_fields import PipelineChoice


class CalibrationStart(calibrate.Request, SentEmbeddings):
    """What to calibrate; with queries from a source, as embeddings with labels, or from the gallery."""

    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks makes a query without a mate."
    )


class CheckStart(check.NewQueries, SentEmbeddings):
    """New labelled queries to try a calibration's promise with: from a source, or embeddings with labels."""

    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks is a thing that is not there."
    )


class ThresholdByHand(PipelineChoice):
    """A threshold that somebody chose; no rate is claimed for it."""

    threshold: StrictFloat = Field(ge=0.0, le=1.0, description="Lowest accepted score.")


class DryRun(PipelineChoice, TriedThreshold):
    """A threshold to try on stored scores, by exactly one of threshold, calibration and target."""
