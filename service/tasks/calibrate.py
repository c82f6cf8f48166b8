"""Calibrate: one calibration of a gallery with stated options, whoever asks for it."""

from __future__ import annotations

from dataclasses import replace

from vicinal.calibration import Target
from vicinal.models.bundle import Noun
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.coarse_labels import coarse_labels_by_column
from vicinal.service.measuring.group_trials import group_forms, require_group_target
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import QueryReading
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.request_fields import CalibrationOptions, PipelineChoice
from vicinal.service.search.pipeline import Pipeline, choose_pipeline
from vicinal.service.words import counted

# What a promise may be worse by before anyone is asked: of photos found, and of wrong matches.
_FEWER_FOUND = 0.02
_MORE_WRONG = 0.005


def chosen_pipeline(matcher: Matcher, choice: PipelineChoice) -> Pipeline:
    """The pipeline that a call names, with the form of group score that is in force for it."""
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
    on_progress: OnProgress = no_progress,
) -> Calibration:
    """Calibrate the built version under a matcher; nothing is kept.

    Args:
        queries: Labelled queries from outside; without them every labelled item is left out once.
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


def objection_in(matcher: Matcher, record: CalibrationRecord) -> str | None:
    """Why a new calibration of a gallery should not be put in force unasked; None where it may."""
    return objection(
        record,
        matcher.calibrations.active(record.pipeline),
        is_broken=matcher.threshold(record.pipeline).state == "broken",
        noun=matcher.embedder.bundle.manifest.noun,
    )


def objection(
    record: CalibrationRecord,
    present: CalibrationRecord | None,
    *,
    is_broken: bool = False,
    noun: Noun = "photo",
) -> str | None:
    """Why a calibration should not replace the one in force without a question; None where it may."""
    if present is None or present.evidence is None or record.evidence is None:
        return None
    if is_broken and record.source != "queries":
        shown = f"{noun.capitalize()}s have shown that the promise in force does not hold"
        return f"{shown}; this one was made without."
    if is_broken:
        return None
    if present.source == "queries" and record.source == "leave_one_out":
        return f"The threshold in force was measured with {noun}s from outside; this one was not."
    ranges = [(promised_range(one, "fnir"), promised_range(one, "fpir")) for one in (present, record)]
    (missed, answered), (misses, answers) = (
        [0.0 if one is None else one.high for one in pair] for pair in ranges
    )
    fewer, more = misses - missed, answers - answered
    misses_more = fewer > _FEWER_FOUND and more > -_MORE_WRONG
    if not misses_more and not (more > _MORE_WRONG and fewer > -_FEWER_FOUND):
        return None
    then, now = _ends(missed, answered), _ends(misses, answers)
    return f"The threshold in force promises {then}; this one promises {now}."


def _ends(missed: float, answered: float) -> str:
    return f"at least {counted(1 - missed)} of 100 found, at most {counted(answered)} of 100 wrong"
