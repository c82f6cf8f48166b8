"""Comparison job: compares a candidate version with the active one, beside the searches."""

from __future__ import annotations

from typing import Any

from vicinal.indexer.gallery import Gallery
from vicinal.service.comparisons.version_comparison import ComparisonPlan, compare_versions
from vicinal.service.comparisons.version_record import ComparisonOptions, VersionComparison
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.tasks.readable_sources import JobSources

__all__ = ["COMPARE", "CompareJob", "CompareRequest", "comparison_fields", "run_comparison"]

COMPARE = "compare"


class CompareRequest(ComparisonOptions):
    """A comparison.

    Attributes:
        version: The candidate.
    """

    version: int


class CompareJob:
    """Compares versions of galleries.

    The comparison has the id of its job, so that an attempt after the death of a worker finds what the one
    before has kept; an unfinished one begins anew.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
    """

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.settings = bundles.settings
        self.sources = JobSources(bundles.settings.sources_dir)

    def check(self, gallery: Gallery, request: CompareRequest) -> None:
        """Refuse what cannot work before it waits in the queue.

        Raises:
            RequestError: The queries lie elsewhere.
            VersionNotFoundError: There is no such version.
        """
        gallery.columns(request.version, ["id"])
        if request.queries is not None:
            self.sources.check(request.queries)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Compare, keep the comparison, and make the candidate's calibration ready."""
        request = CompareRequest.model_validate(context.request)
        gallery = Gallery.open(self.settings.galleries_path / context.job.gallery)
        options = ComparisonOptions.model_validate(request.model_dump(exclude={"version"}))
        plan = ComparisonPlan(gallery, self.bundles, options)
        made = run_comparison(context, plan, request.version, self.sources)
        return {"version": request.version, **comparison_fields(made)}

    def clean(self, job: Job) -> None:
        """Nothing is kept for another attempt."""


def run_comparison(
    context: JobContext, plan: ComparisonPlan, version: int, sources: JobSources
) -> VersionComparison:
    """Compare within a job, which is told how far it is.

    Args:
        context: The job; the comparison gets its id.
        plan: What to compare; where its queries are is filled in.
        version: The candidate.
        sources: What the job may read.

    Raises:
        RequestError: The version is the active one, or the queries lie elsewhere.
        JobStoppedError: The job must stop here.
    """
    queries = plan.options.queries
    before = context.job.progress

    def report(stage: str, done: int, total: int) -> None:
        counts = before.model_dump(exclude={"rate", "seconds_left"})
        counts |= {"stage": stage, "stage_done": done, "stage_total": total}
        context.report(JobProgress.model_validate(counts))

    return compare_versions(
        ComparisonPlan(
            plan.gallery,
            plan.bundles,
            plan.options,
            plan.conditions,
            queries=None if queries is None else sources.path(queries),
            refuse=sources.refusal,
            on_stage=report,
        ),
        version,
        context.job.id,
    )


def comparison_fields(made: VersionComparison) -> dict[str, Any]:
    """What the result of a job says of a comparison."""
    return {
        "comparison": made.id,
        "against": made.old.version,
        "calibration": made.calibration.calibration,
        "calibration_problem": made.calibration.problem,
        "summary": made.summary,
    }
