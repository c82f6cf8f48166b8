"""Calibrate: one calibration of a gallery with stated options, whoever asks for it."""

from __future__ import annotations

from dataclasses import replace

from vicinal.calibration import Target
from vicinal.service.calibrator.calibrator import Calibration, Calibrator
from vicinal.service.calibrator.coarse_labels import coarse_labels_by_column
from vicinal.service.calibrator.group_trials import group_forms, require_group_target
from vicinal.service.calibrator.options import CalibrationOptions, PipelineChoice
from vicinal.service.calibrator.queries import OnProgress, QueryReading
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import Pipeline, choose_pipeline

__all__ = ["chosen_pipeline", "run_calibration"]


def chosen_pipeline(matcher: Matcher, choice: PipelineChoice) -> Pipeline:
    """The pipeline that a call names, with the form of group score that is in force for it.

    Raises:
        RequestError: There is no such pipeline.
        RefinerNotFoundError: The bundle has no refiner, and refinement was asked for.
        RefinementError: The refiner has fewer steps.
    """
    chosen = choose_pipeline(
        matcher.pipeline,
        choice.rerank,
        refine=choice.refine,
        steps=choice.steps,
        group_by=choice.group_by,
        bundle=matcher.embedder.bundle,
    )
    if chosen.group is None:
        return chosen
    # Refused where nothing can be grouped.
    matcher.groups(chosen.group.by)
    return matcher.thresholds.with_form(chosen)


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
        on_progress: Called with `score`, finished and all queries.

    Raises:
        CalibrationError: No threshold can be found; see `Calibrator`.
    """
    snapshot, pipeline = matcher.snapshot, chosen_pipeline(matcher, options)
    if pipeline.group is not None:
        require_group_target(pipeline.group, Target.parse(options.target))
    calibrator = Calibrator.of_version(
        matcher.gallery,
        snapshot,
        pipeline,
        matcher.refinement(pipeline),
        # Photos from outside were taken apart from those of the gallery, but for those of a named visit.
        by="none" if queries is not None and options.visits_by == "auto" else options.visits_by,
        max_queries=options.max_queries,
        forms=None if pipeline.group is None else group_forms(pipeline.group.by, options.group_score),
    )
    coarse = options.coarse_labels
    if options.coarse_by is not None:
        coarse = coarse_labels_by_column(snapshot, options.coarse_by, queries.metadata if queries else ())
    found = calibrator.measure(
        queries.labelled() if queries else calibrator.leave_one_out(),
        Target.parse(options.target),
        coarse_labels=coarse,
        absent=options.absent,
        on_progress=on_progress,
    )
    if queries is None:
        return found
    warnings = (*queries.warnings, *found.record.warnings)
    return replace(found, record=found.record.model_copy(update={"warnings": warnings}))
