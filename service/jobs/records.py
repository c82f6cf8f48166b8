"""Job records that every process can read; unknown fields, which a newer one writes, are passed over."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINAL_STATES: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})


class JobFailure(BaseModel, frozen=True, from_attributes=True):
    """File that could not be used, and why."""

    id: str
    path: str
    reason: str


class JobProgress(BaseModel, frozen=True):
    """Progress of a job.

    Attributes:
        stage: What it does at the moment; None before it starts.
        stage_done: Finished units of that stage.
        stage_total: All units of that stage.
        total: Items of the source.
        done: Items that this attempt finished.
        failed: Items that cannot be used.
        skipped: Items that an earlier attempt had finished.
        rate: Units of the stage a second, in this attempt; None before the first.
        seconds_left: Estimate for the stage.
        failures: The first files that cannot be used.
    """

    stage: str | None = None
    stage_done: int = 0
    stage_total: int = 0
    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    rate: float | None = None
    seconds_left: float | None = None
    failures: tuple[JobFailure, ...] = ()


class Job(BaseModel, frozen=True):
    """Job as it is recorded.

    Attributes:
        kind: What it does, such as `reindex`.
        gallery: The gallery it works on; one job a gallery.
        folders: Folders below `sources_dir` that it may read, by the key that asked; None for all.
        cancel_requested: Whether somebody wants it cancelled; filled in when a record is read.
        revision: Grows by one with every change of the record.
        attempt: How often it was begun; more than once when a worker died.
        worker: Who works on it, or did last.
        problem_type: Stable type of that problem, as an answer would carry it.
        problem_members: What else a program can read of it.
    """

    id: str
    kind: str
    gallery: str
    request: dict[str, Any]
    folders: tuple[str, ...] | None = None
    state: JobState = "queued"
    cancel_requested: bool = False
    revision: int = 0
    attempt: int = 0
    worker: str | None = None
    progress: JobProgress = JobProgress()
    problem: str | None = None
    problem_type: str | None = None
    problem_members: dict[str, Any] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    updated_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        """Tell whether nothing will change any more."""
        return self.state in FINAL_STATES


def new_job(kind: str, gallery: str, request: dict[str, Any], folders: tuple[str, ...] | None = None) -> Job:
    """A job that waits; its id sorts by time and cannot collide by accident."""
    job_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    return Job(id=job_id, kind=kind, gallery=gallery, request=request, folders=folders)
