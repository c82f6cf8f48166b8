"""Check job: tries what a calibration promised with new labelled queries, beside the searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vicinal.calibration import CalibrationError
from vicinal.indexer.gallery import Gallery
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.options import QuerySourceOptions
from vicinal.service.tasks.check import require_checkable, run_check
from vicinal.service.tasks.query_uploads import QueryProgress, QueryRequest, QueryUploads

CHECK = "check"


class CheckRequest(QuerySourceOptions, QueryRequest):
    """Which calibration is tried, and the labelled queries that it is tried with."""

    calibration: str


class CheckJob:
    """Tries what calibrations promised; an attempt after the death of a worker begins anew.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
    """

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.uploads = QueryUploads(bundles.settings)

    def check(self, matcher: Matcher, request: CheckRequest, labels: Sequence[str] | None = None) -> None:
        """Refuse what cannot work before it waits in the queue."""
        require_checkable(matcher, matcher.calibrations.find(request.calibration))
        if request.queries is None and not request.is_upload:
            raise CalibrationError(
                "a promise is tried with new photos: send queries (a source), embeddings with labels, or a "
                "form with the fields image and label"
            )
        self.uploads.check(matcher, request, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Search for the queries, and keep what was found beside the calibration."""
        request = CheckRequest.model_validate(context.request)
        matcher = self.bundles.matcher(Gallery.open(self.bundles.settings.gallery_path(context.job.gallery)))
        record, progress = matcher.calibrations.find(request.calibration), QueryProgress(context)
        options = request.source_options
        queries = self.uploads.read(context.job, matcher, request, progress, visits_by=None, options=options)
        if queries is None:
            raise CalibrationError("the queries of the check are gone: start it again")
        found = run_check(matcher, record, queries, on_progress=progress)
        progress("keep", 0, 1)
        matcher.calibrations.keep_check(found)
        return found.model_dump(mode="json")

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        self.uploads.clean(job)
