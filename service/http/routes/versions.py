"""Comparisons: what a candidate version would change, before it is activated."""

from __future__ import annotations

from fastapi import APIRouter, Response

from vicinal.service.comparisons.version_record import ComparisonOptions, VersionComparison
from vicinal.service.comparisons.version_store import latest_comparison
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs import Job, new_job
from vicinal.service.tasks.version_comparison_job import COMPARE, CompareRequest

__all__ = ["router"]

router = APIRouter(prefix="/v1/admin/galleries/{gallery}/versions/{version}", tags=["galleries"])


@router.post("/compare", status_code=202)
def compare_version(
    gallery: str,
    version: int,
    body: ComparisonOptions,
    state: StateDependency,
    response: Response,
) -> Job:
    """Compare a version with the active one, in a job whose id is that of the comparison.

    The version also gets a calibration of its own, which comes into force when it is activated.
    Another job on the gallery: 409, with its id as `job`.
    """
    request = CompareRequest.model_validate({**body.model_dump(), "version": version})
    state.kinds.compare.check(state.galleries.gallery(gallery), request)
    job = state.jobs.create(new_job(COMPARE, gallery, request.model_dump()))
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("/comparison")
def get_comparison(gallery: str, version: int, state: StateDependency) -> VersionComparison:
    """The newest comparison of a version."""
    return latest_comparison(state.galleries.gallery(gallery), version)
