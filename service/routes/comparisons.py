"""Comparisons: what a candidate version would change, before it is activated."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.comparison_schemas import ComparisonOptions, VersionComparison
from service.comparison_store import latest_comparison
from service.jobs import Job, new_job
from service.jobs.compare import COMPARE, CompareRequest
from service.routes.context import CompareDependency, GalleriesDependency, JobsDependency

__all__ = ["router"]

router = APIRouter(prefix="/v1/admin/galleries/{gallery}/versions/{version}", tags=["galleries"])


@router.post("/compare", status_code=202)
def compare_version(
    gallery: str,
    version: int,
    body: ComparisonOptions,
    galleries: GalleriesDependency,
    jobs: JobsDependency,
    comparisons: CompareDependency,
    response: Response,
) -> Job:
    """Compare a version with the active one, in a job whose id is that of the comparison.

    The version also gets a calibration of its own, which comes into force when it is activated.
    Another job on the gallery: 409, with its id as `job`.
    """
    request = CompareRequest.model_validate({**body.model_dump(), "version": version})
    comparisons.check(galleries.gallery(gallery), request)
    job = jobs.create(new_job(COMPARE, gallery, request.model_dump()))
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("/comparison")
def get_comparison(gallery: str, version: int, galleries: GalleriesDependency) -> VersionComparison:
    """The newest comparison of a version."""
    return latest_comparison(galleries.gallery(gallery), version)
