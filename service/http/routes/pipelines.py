"""Pipelines of a gallery: compare several, and put one in force together with its threshold."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from vicinal.service.comparisons.pipeline_record import PipelineComparison, PipelineComparisonOptions
from vicinal.service.comparisons.pipeline_store import PipelineComparisonStore, activate_pipeline
from vicinal.service.errors import RequestError
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs import Job, new_job
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import ActivePipeline
from vicinal.service.tasks.pipeline_comparison_job import COMPARE_PIPELINES, PipelineComparisonRequest

__all__ = ["router"]

router = APIRouter()


class PipelineComparisonStart(PipelineComparisonOptions):
    """What to compare; with queries from a source, as embeddings with labels, or from the gallery."""

    queries: str | None = Field(
        None, description="Labelled queries below `sources_dir`; without: every labelled item is left out."
    )
    embeddings: list[list[float]] | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: list[str] | None = Field(None, description="Label of each embedding.")


class PipelineActivation(BaseModel):
    """Which of the compared pipelines is put in force."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pipeline: str | None = Field(None, description="Its key; the recommended one when null.")


class ActivePipelineBody(BaseModel):
    """What `auto` stands for in the searches of a gallery."""

    model_config = ConfigDict(frozen=True)

    pipeline: str
    source: Literal["settings", "comparison"]
    comparison: str | None = Field(description="The comparison that it comes from.")
    calibration: str | None = Field(description="The calibration that was put in force with it.")
    since: datetime | None
    threshold: float | None = Field(description="What decides its searches.")
    state: Literal["current", "stale", "none"]
    reason: str | None = Field(description="Why a pipeline that was chosen is not used.")


@router.post("/calibrations/compare", status_code=202)
def start_comparison(
    gallery: str,
    start: PipelineComparisonStart,
    state: StateDependency,
    response: Response,
) -> Job:
    """Try several pipelines on the same queries, in a job whose id is that of the comparison."""
    if start.embeddings is not None and start.queries is not None:
        raise RequestError("give queries or embeddings, not both")
    if (start.embeddings is None) != (start.labels is None):
        raise RequestError("embeddings and labels go together: give both")
    matcher = state.galleries.matcher(gallery)
    comparing = state.kinds.compare_pipelines
    is_upload = start.embeddings is not None
    options = start.model_dump(exclude={"embeddings", "labels"})
    request = PipelineComparisonRequest.model_validate({**options, "is_upload": is_upload})
    comparing.check_comparison(matcher, request, start.labels)
    job = new_job(COMPARE_PIPELINES, matcher.gallery.name, request.model_dump(mode="json"))
    with ExitStack() as undo:
        undo.callback(comparing.clean, job)
        if start.embeddings is not None:
            dim = matcher.snapshot.manifest.dim
            comparing.uploads.keep_embeddings(job, start.embeddings, start.labels or [], dim=dim)
        created = state.jobs.create(job)
        undo.pop_all()
    response.headers["Location"] = f"/v1/jobs/{created.id}"
    return created


@router.get("/calibrations/pipelines")
def list_comparisons(gallery: str, state: StateDependency) -> list[PipelineComparison]:
    """All comparisons of pipelines, newest first."""
    return PipelineComparisonStore(state.galleries.matcher(gallery).calibrations).history()


@router.get("/calibrations/pipelines/{comparison}")
def get_comparison(gallery: str, comparison: str, state: StateDependency) -> PipelineComparison:
    """One comparison of pipelines."""
    return PipelineComparisonStore(state.galleries.matcher(gallery).calibrations).find(comparison)


@router.post("/calibrations/pipelines/{comparison}/activate")
def activate_comparison(
    gallery: str, comparison: str, body: PipelineActivation, state: StateDependency
) -> ActivePipelineBody:
    """Use a compared pipeline and its threshold, both from the next search on."""
    matcher = state.galleries.matcher(gallery)
    found = PipelineComparisonStore(matcher.calibrations).find(comparison)
    return _described(matcher, activate_pipeline(matcher, found, body.pipeline))


@router.get("/pipeline")
def get_pipeline(gallery: str, state: StateDependency) -> ActivePipelineBody:
    """What searches without further options are made with."""
    matcher = state.galleries.matcher(gallery)
    return _described(matcher, matcher.active_pipeline)


@router.delete("/pipeline")
def reset_pipeline(gallery: str, state: StateDependency) -> ActivePipelineBody:
    """Let the settings of the service choose the pipeline again; its own threshold decides then."""
    matcher = state.galleries.matcher(gallery)
    matcher.pipeline_file.clear()
    return _described(matcher, matcher.active_pipeline)


def _described(matcher: Matcher, found: ActivePipeline) -> ActivePipelineBody:
    threshold = matcher.threshold(found.pipeline)
    chosen = found.chosen
    return ActivePipelineBody(
        pipeline=found.pipeline.key,
        source=found.source,
        comparison=None if chosen is None else chosen.comparison,
        calibration=None if chosen is None else chosen.calibration,
        since=None if chosen is None else chosen.at,
        threshold=threshold.value,
        state=threshold.state,
        reason=found.reason,
    )
