"""Calibration run: one calibration of a gallery with stated options, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vicinal.calibration import CalibrationError, Target
from vicinal.service.calibrator.calibrator import Calibration, Calibrator
from vicinal.service.calibrator.coarse_labels import coarse_labels_by_column
from vicinal.service.calibrator.item_groups import PhotoGroups
from vicinal.service.calibrator.near_duplicates import picture_comparison
from vicinal.service.calibrator.queries import LabelledQueries
from vicinal.service.calibrator.query_sources import QueryReading
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import Pipeline, RefineChoice, RerankChoice, choose_pipeline

__all__ = ["CalibrationOptions", "PipelineChoice", "chosen_pipeline", "run_calibration"]

OnProgress = Callable[[int, int], None]


class PipelineChoice(BaseModel):
    """The pipeline that a call is about.

    Attributes:
        refine: What it refines.
        steps: Steps of the refiner.
        rerank: How it re-ranks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    refine: RefineChoice = Field("auto", description="What the pipeline refines; `auto` is the service's.")
    steps: int | None = Field(None, ge=1, description="Steps of the refiner; the service's when null.")
    rerank: RerankChoice = Field("auto", description="How it re-ranks; `auto` is the service's.")


class CalibrationOptions(PipelineChoice):
    """What to calibrate, and for which target.

    Attributes:
        target: Such as `fpir=5%`; see `calibration.Target.parse`.
        max_queries: Most queries that are scored; more are sampled.
        coarse_labels: Coarse label of each label, to tell near from far queries.
        coarse_by: Metadata column that holds the coarse label, in place of the above.
        group_by: Metadata column of the visit or session: photos of one are never each other's mates.
        activate: Whether searches use the threshold as soon as it is there.
    """

    target: str = Field(
        "fpir=5%",
        description="`fpir=5%`, `fnir=20%`, `far=0.001`, `frr=10%`, `precision=95%`, `utility=mean` or "
        "`utility=worst`.",
    )
    max_queries: int = Field(2000, ge=1, le=100_000, description="Sample at most this many queries.")
    coarse_labels: dict[str, str] | None = Field(
        None, description="Coarse label of each label, to tell near from far queries without a mate."
    )
    coarse_by: str | None = Field(
        None, description="Metadata column that holds the coarse label, in place of `coarse_labels`."
    )
    group_by: str | None = Field(
        None, description="Metadata column of the visit or session: photos of one are never mates."
    )
    activate: bool = Field(True, description="Whether searches use the threshold as soon as it is there.")

    @model_validator(mode="after")
    def _one_kind_of_coarse_labels(self) -> CalibrationOptions:
        if self.coarse_labels is not None and self.coarse_by is not None:
            raise ValueError("coarse labels come as coarse_labels or by coarse_by: name one of them")
        return self

    @field_validator("target")
    @classmethod
    def _is_target(cls, text: str) -> str:
        try:
            Target.parse(text)
        except CalibrationError as error:
            raise ValueError(str(error)) from error
        return text


def chosen_pipeline(matcher: Matcher, choice: PipelineChoice) -> Pipeline:
    """The pipeline that a call names.

    Raises:
        RequestError: There is no such pipeline.
        RefinerNotFoundError: The bundle has no refiner, and refinement was asked for.
        RefinementError: The refiner has fewer steps.
    """
    return choose_pipeline(
        matcher.pipeline,
        choice.rerank,
        refine=choice.refine,
        steps=choice.steps,
        bundle=matcher.embedder.bundle,
    )


def run_calibration(
    matcher: Matcher,
    options: CalibrationOptions,
    queries: QueryReading | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Calibration:
    """Calibrate the built version under a matcher; nothing is kept.

    Args:
        matcher: The gallery.
        options: What to calibrate.
        queries: Labelled queries from outside; without them every labelled item is left out once.
        on_progress: Called with finished and all queries.

    Raises:
        CalibrationError: No threshold can be found; see `Calibrator`.
    """
    snapshot = matcher.snapshot
    groups = PhotoGroups.of(snapshot, options.group_by) if options.group_by else None
    pipeline = chosen_pipeline(matcher, options)
    calibrator = Calibrator(
        snapshot,
        pipeline,
        max_queries=options.max_queries,
        refinement=matcher.refinement(pipeline),
        groups=groups,
        same_pictures=picture_comparison(matcher.gallery, snapshot),
    )
    coarse = options.coarse_labels
    if options.coarse_by is not None:
        coarse = coarse_labels_by_column(
            snapshot, options.coarse_by, () if queries is None else queries.metadata
        )
    return calibrator.measure(
        LabelledQueries.leave_one_out(snapshot, groups) if queries is None else queries.labelled(),
        Target.parse(options.target),
        coarse_labels=coarse,
        on_progress=on_progress,
    )
