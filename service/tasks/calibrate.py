"""Calibration run: one calibration of a gallery with stated options, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable

from vicinal.calibration import Target
from vicinal.service.calibrator.calibrator import Calibration, Calibrator
from vicinal.service.calibrator.item_groups import PhotoGroups, coarse_labels_by_column
from vicinal.service.calibrator.leave_one_out_checks import picture_comparison
from vicinal.service.calibrator.options import CalibrationOptions, PipelineChoice
from vicinal.service.calibrator.queries import LabelledQueries, QueryReading
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import Pipeline, choose_pipeline

__all__ = ["chosen_pipeline", "run_calibration"]

OnProgress = Callable[[int, int], None]


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
