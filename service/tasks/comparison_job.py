"""Comparison job: tries variants of a gallery on the same queries, beside the searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.sources import refuse_none
from vicinal.service.comparing.comparison import ComparisonPlan, compare
from vicinal.service.comparing.record import Comparison, ComparisonOptions, ComparisonRequest
from vicinal.service.comparing.variants import open_variants
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.tasks.query_uploads import QueryRequest, QueryUploads
from vicinal.service.tasks.readable_sources import JobSources

COMPARE = "compare"


class ComparisonJobRequest(ComparisonRequest, QueryRequest):
    """A comparison, and the labelled queries that it is made with."""


class ComparisonJob:
    """Compares variants; the comparison has the id of its job, and one that is kept is not made again.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
    """

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.uploads = QueryUploads(bundles.settings)

    def check(
        self, gallery: Gallery, request: ComparisonJobRequest, labels: Sequence[str] | None = None
    ) -> None:
        """Refuse what cannot work before it waits in the queue."""
        open_variants(gallery, self.bundles, request)
        check_sources(self.uploads.sources, request)
        if not request.versions:
            self.uploads.check(self.bundles.matcher(gallery), request, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Compare, and keep the comparison."""
        request = ComparisonJobRequest.model_validate(context.request)
        gallery = Gallery.open(self.bundles.settings.gallery_path(context.job.gallery))
        asked = ComparisonRequest.model_validate(request.model_dump(exclude={"is_upload"}))
        plan = ComparisonPlan(gallery, self.bundles, asked)
        if request.is_upload:
            plan = replace(plan, queries=self.uploads.uploaded(context.job))
        return comparison_fields(run_comparison(context, plan, self.uploads.sources))

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        self.uploads.clean(job)


def run_comparison(context: JobContext, plan: ComparisonPlan, sources: JobSources) -> Comparison:
    """Compare within a job, which is told how far it is.

    Args:
        sources: What the job may read.
    """
    sources = sources.within(context.job.folders)
    before = context.job.progress.model_dump(exclude={"rate", "seconds_left"})

    def report(stage: str, done: int, total: int, _note: str = "", /) -> None:
        counts = before | {"stage": stage, "stage_done": done, "stage_total": total}
        context.report(JobProgress.model_validate(counts))

    queries, pictures = (
        None if name is None else sources.path(name) for name in (plan.request.queries, plan.request.pictures)
    )
    # Uploads lie elsewhere, and name no other files.
    refuse = refuse_none if queries is None and plan.queries is not None else sources.refusal
    named = replace(plan, queries=queries or plan.queries, pictures=pictures, refuse=refuse, on_stage=report)
    return compare(named, context.job.id)


def check_sources(sources: JobSources, options: ComparisonOptions) -> None:
    """Refuse queries and pictures that are no sources."""
    if options.queries is not None:
        sources.check(options.queries, also=(".npz",))
    if options.pictures is not None:
        sources.check(options.pictures)


def comparison_fields(made: Comparison) -> dict[str, Any]:
    """What the result of a job says of a comparison."""
    return {
        "comparison": made.id,
        "recommended": made.recommended,
        "reason": made.reason,
        "summaries": made.summaries,
    }
