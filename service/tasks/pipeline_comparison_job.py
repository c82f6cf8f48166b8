"""Pipeline comparison job: tries several pipelines on the same queries, beside the searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vicinal.service.comparisons.pipeline_comparison import compare_pipelines
from vicinal.service.comparisons.pipeline_record import PipelineComparison, PipelineComparisonOptions
from vicinal.service.comparisons.pipeline_store import PipelineComparisonStore
from vicinal.service.comparisons.pipeline_variants import variant_pipelines
from vicinal.service.errors import CalibrationNotFoundError
from vicinal.service.jobs.context import JobContext
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.tasks.calibration_job import CalibrationJob
from vicinal.service.tasks.query_uploads import QueryProgress, QueryRequest

__all__ = ["COMPARE_PIPELINES", "PipelineComparisonJob", "PipelineComparisonRequest"]

COMPARE_PIPELINES = "compare-pipelines"


class PipelineComparisonRequest(PipelineComparisonOptions, QueryRequest):
    """A comparison, and the labelled queries that it is made with."""


class PipelineComparisonJob(CalibrationJob):
    """Compares pipelines; the comparison has the id of its job, and one that is kept is not made again."""

    def check_comparison(
        self, matcher: Matcher, request: PipelineComparisonRequest, labels: Sequence[str] | None = None
    ) -> None:
        """Refuse what cannot work before it waits in the queue.

        Args:
            matcher: The gallery.
            request: What was asked for.
            labels: Labels of queries that came with it.

        Raises:
            RequestError: The queries lie elsewhere, or there is no pipeline to compare with.
            CalibrationError: Nothing is labelled, or everything alike.
            RefineError: The bundle has no such refiner.
            GalleryNotRefinedError: The gallery's items were never refined so.
        """
        variant_pipelines(matcher, request.variants)
        self.uploads.check(matcher, request, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Compare, and keep the comparison."""
        request = PipelineComparisonRequest.model_validate(context.request)
        matcher = self.matcher(context.job.gallery)
        store = PipelineComparisonStore(matcher.calibrations)
        try:
            found = store.find(context.job.id)
        except CalibrationNotFoundError:
            found = self._compare(context, matcher, request)
        return {
            "comparison": found.id,
            "present": found.present,
            "recommended": found.recommended,
            "reason": found.reason,
        }

    def _compare(
        self, context: JobContext, matcher: Matcher, request: PipelineComparisonRequest
    ) -> PipelineComparison:
        progress = QueryProgress(context)
        reading = self.uploads.read(context.job, matcher, request, progress, group_by=request.group_by)
        options = PipelineComparisonOptions.model_validate(
            request.model_dump(exclude={"queries", "is_upload"})
        )
        found = compare_pipelines(matcher, options, reading, name=context.job.id, on_progress=progress)
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        progress("keep", 0, 1)
        return PipelineComparisonStore(matcher.calibrations).add(found)
