"""Pipeline comparison schemas: what was tried, what came of it, and what is recommended."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vicinal.calibration import CalibrationError, Target
from vicinal.service.calibrator.evidence import RateEvidence
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.comparisons.pipeline_variants import VariantOptions
from vicinal.service.scoring.pipeline import Pipeline

__all__ = [
    "FigureDifference",
    "PipelineComparison",
    "PipelineComparisonOptions",
    "PipelineFigures",
    "PipelineVariant",
    "SelectionOptimism",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PipelineComparisonOptions(_Frozen):
    """What is compared, and for which target.

    Attributes:
        target: Such as `fpir=5%`; every pipeline gets the threshold that holds it.
        variants: Which pipelines are tried.
        max_queries: Most queries that are scored; more are sampled.
        group_by: Metadata column of the visit or session: photos of one are never each other's mates.
        seed: Seed of the sample, the draws and the splits.
    """

    target: str = Field("fpir=5%", description="As for a calibration.")
    variants: VariantOptions = Field(VariantOptions(), description="Which pipelines are tried.")
    max_queries: int = Field(1000, ge=1, le=100_000, description="Sample at most this many queries.")
    group_by: str | None = Field(
        None, description="Metadata column of the visit or session: photos of one are never mates."
    )
    seed: int = Field(0, ge=0, description="Seed of the sample, the draws and the splits.")

    @field_validator("target")
    @classmethod
    def _is_target(cls, text: str) -> str:
        try:
            Target.parse(text)
        except CalibrationError as error:
            raise ValueError(str(error)) from error
        return text


class PipelineFigures(_Frozen):
    """Figures of one pipeline.

    Attributes:
        threshold: What holds the target.
        error: The compared error at that threshold.
        hit_rate: Share of the queries with a mate whose best candidate is one (R@1).
        map_at_r: Mean average precision over the first R candidates, R the number of mates.
        auroc: How often the best mate of a query scores above the best item of one without a mate.
        opis: On final scores; None where no class has a utility.
        opis_floor: What equal classes would show.
    """

    threshold: float
    error: RateEvidence
    hit_rate: RateEvidence
    map_at_r: float
    auroc: float
    opis: float | None
    opis_floor: float | None


class FigureDifference(_Frozen):
    """A figure minus that of the present pipeline, on the same queries.

    Attributes:
        difference: Measured.
        low: Lower end of its 95 % interval, by bootstrap over labels.
        high: Upper end.
    """

    difference: float
    low: float
    high: float


class PipelineVariant(_Frozen):
    """One pipeline that was tried.

    Attributes:
        key: Its key, by which it is activated.
        record: The calibration that comes into force with it; None where it has none.
        figures: None where it could not be calibrated.
        differences: To the present pipeline, by name of the figure.
        problem: Why it could not be calibrated.
    """

    pipeline: Pipeline
    key: str
    record: CalibrationRecord | None = None
    figures: PipelineFigures | None = None
    differences: dict[str, FigureDifference] = Field(default_factory=dict)
    problem: str | None = None


class SelectionOptimism(_Frozen):
    """What choosing the pipeline with the lowest error promises too much.

    Attributes:
        promised: Its error on the half of the labels that it was chosen on, mean over random splits.
        shown: Its error on the other half.
        optimism: shown - promised.
        n_splits: Splits.
        n_pipelines: Pipelines to choose from.
    """

    promised: float
    shown: float
    optimism: float
    n_splits: int
    n_pipelines: int


class PipelineComparison(_Frozen):
    """Several pipelines on the same queries; never changed.

    Attributes:
        asked: The error that is compared: FNIR, or FPIR where the target holds FNIR or FRR.
        present: Key of the pipeline that was in use.
        variants: The present one first.
        recommended: Key of the pipeline to use.
        reason: Why.
        optimism: None where there are too few labels to split.
        warnings: What makes the comparison worth less.
    """

    format_version: Literal[1] = 1
    id: str
    created_at: datetime
    gallery: str
    bundle: str
    version: int
    n_items: int
    source: Literal["leave_one_out", "queries"]
    options: PipelineComparisonOptions
    asked: Literal["fpir", "fnir"]
    n_queries: int
    n_labels: int
    present: str
    variants: tuple[PipelineVariant, ...]
    recommended: str
    reason: str
    optimism: SelectionOptimism | None
    warnings: tuple[str, ...]

    def variant(self, key: str) -> PipelineVariant | None:
        """The variant of a key, or None."""
        return next((one for one in self.variants if one.key == key), None)
