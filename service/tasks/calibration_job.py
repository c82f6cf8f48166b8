"""Calibration job: finds the threshold for a target, beside the searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.service.errors import CalibrationNotFoundError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job
from vicinal.service.measuring.group_trials import require_group_target
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.visits import visit_column
from vicinal.service.request_fields import CalibrationOptions, QuerySource
from vicinal.service.tasks.calibrate import chosen_pipeline, objection_in, run_calibration
from vicinal.service.tasks.query_uploads import QueryProgress, QueryRequest, QueryUploads

CALIBRATE = "calibrate"


class CalibrationRequest(CalibrationOptions, QuerySource, QueryRequest):
    """A calibration, and the labelled queries that it is made with."""


class CalibrationJob:
    """Calibrates galleries.

    The record has the id of its job, so that an attempt after the death of a worker finds what the one before
    has kept; an unfinished one begins anew.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
        on_change: Called with the name of a gallery whose threshold has changed.
    """

    def __init__(self, bundles: ServedBundles, on_change: Callable[[str], None]) -> None:
        self.bundles = bundles
        self.uploads = QueryUploads(bundles.settings)
        self._on_change = on_change

    def check(
        self, matcher: Matcher, request: CalibrationRequest, labels: Sequence[str] | None = None
    ) -> None:
        """Refuse what cannot work before it waits in the queue."""
        pipeline = chosen_pipeline(matcher, request)
        if pipeline.group is not None:
            require_group_target(pipeline.group, Target.parse(request.target))
        matcher.refinement(pipeline)
        self.uploads.check(matcher, request, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Calibrate, keep the record, and put it in force where it may be."""
        request = CalibrationRequest.model_validate(context.request)
        matcher = self.matcher(context.job.gallery)
        record = _kept(matcher, context.job) or self._calibrate(context, matcher, request)
        kept_back = objection_in(matcher, record) if request.activate is None else None
        is_active = kept_back is None if request.activate is None else request.activate
        if is_active:
            matcher.calibrations.activate(record)
            self._on_change(context.job.gallery)
        return {
            "calibration": record.id,
            "threshold": record.threshold,
            "target": str(record.target),
            "pipeline": record.pipeline.key,
            "is_active": is_active,
            "objection": kept_back,
        }

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        self.uploads.clean(job)

    def matcher(self, name: str) -> Matcher:
        """Matcher of the present state of a gallery, with the bundle that it was embedded with."""
        return self.bundles.matcher(Gallery.open(self.bundles.settings.gallery_path(name)))

    def _calibrate(
        self, context: JobContext, matcher: Matcher, request: CalibrationRequest
    ) -> CalibrationRecord:
        job, progress = context.job, QueryProgress(context)
        queries = self.uploads.read(
            job,
            matcher,
            request,
            progress,
            visits_by=visit_column(request.visits_by),
            options=request.source_options,
        )
        found = run_calibration(matcher, request, queries, on_progress=progress)
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        progress("keep", 0, 1)
        own = found.record.model_copy(update={"id": job.id})
        return _kept(matcher, job) or matcher.calibrations.add(
            own, found.scores, found.curves, activate=False
        )


def _kept(matcher: Matcher, job: Job) -> CalibrationRecord | None:
    """What another attempt has finished."""
    try:
        return matcher.calibrations.find(job.id)
    except CalibrationNotFoundError:
        return None
