"""Re-index: start the job that makes a new version of a gallery."""

from __future__ import annotations

from fastapi import APIRouter, Response

from vicinal.service.http.requests import JobsDependency, ReindexDependency
from vicinal.service.jobs import Job, new_job
from vicinal.service.tasks.reindex_job import REINDEX, ReindexRequest

__all__ = ["router"]

router = APIRouter(prefix="/v1/admin/galleries", tags=["jobs"])


@router.post("/{gallery}/reindex", status_code=202)
def reindex_gallery(
    gallery: str, body: ReindexRequest, jobs: JobsDependency, reindex: ReindexDependency, response: Response
) -> Job:
    """Make a new version from a source, with other settings or another bundle, while the old one is searched.

    Live changes made meanwhile are kept. Another job on the gallery: 409, with its id as `job`.
    """
    reindex.check(gallery, body)
    job = jobs.create(new_job(REINDEX, gallery, body.model_dump()))
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
