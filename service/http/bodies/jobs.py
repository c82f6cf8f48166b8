"""Request and response bodies of the calls about jobs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from vicinal.service.jobs.records import Job

__all__ = ["JobListBody"]


class JobListBody(BaseModel):
    """Jobs, newest first."""

    model_config = ConfigDict(frozen=True)

    jobs: list[Job]
