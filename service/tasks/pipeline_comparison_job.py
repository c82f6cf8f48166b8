"""Pipeline comparison job: tries several pipelines on the same queries, beside the searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vicinal.indexer.gallery import Gallery
from vicinal.service.comparisons.pipeline_comparison import compare_pipelines
from vicinal.service.comparisons.pipeline_record import PipelineComparison, PipelineComparisonOptions
from vicinal.service.comparisons.pipeline_store import PipelineComparisonStore
from vicinal.service.comparisons.pipeline_variants import variant_pipelines
from vicinal.service.errors import CalibrationNotFoundError
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import JobProgress
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.tasks.calibration_job import CalibrationJob

__all__ = ["COMPARE_PIPELINES", "PipelineComparisonJob", "PipelineComparisonRequest"]

COMPARE_PIPELINES = "compare-pipelines"


class PipelineComparisonRequest(PipelineComparisonOptions):
    """A comparison, and the labelled queries that it is made with.

    Attributes:
        queries: Folder, manifest or `.npz` file below `sources_dir`; without one, and without an upload,
            every labelled item is left out once.
        is_upload: Whether the queries came with the request.
    """

    queries: str | None = None
    is_upload: bool = False


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
        self._check_labels_of(matcher, request, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Compare, and keep the comparison."""
        request = PipelineComparisonRequest.model_validate(context.request)
        matcher = self.matcher(Gallery.open(self.settings.galleries_path / context.job.gallery))
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
        reading = self._reading(context, matcher, request)

        def report(done: int, total: int) -> None:
            context.report(JobProgress(stage="score", stage_done=done, stage_total=total))

        options = PipelineComparisonOptions.model_validate(
            request.model_dump(exclude={"queries", "is_upload"})
        )
        found = compare_pipelines(matcher, options, reading, name=context.job.id, on_progress=report)
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        context.report(JobProgress(stage="keep", stage_done=0, stage_total=1))
        return PipelineComparisonStore(matcher.calibrations).add(found)
