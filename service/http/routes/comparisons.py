"""Comparisons of a gallery: compare variants, put one in force, and see which pipeline searches use."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request, Response
from pydantic import Field, StrictInt

from vicinal.service.comparing.record import Comparison
from vicinal.service.comparing.store import ComparisonStore, put_in_force
from vicinal.service.http.gate import AdminRoute, Routes, large_body
from vicinal.service.http.request_bodies import SentEmbeddings
from vicinal.service.http.routes.jobs import begin_job
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs.records import Job
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.operations import compare as operation
from vicinal.service.request_fields import Body, RequestFields
from vicinal.service.search.answers import CalibrationState
from vicinal.service.search.pipeline import PipelineSource

router = Routes(prefix="/v1/admin/galleries/{gallery}", tags=["comparisons"], route_class=AdminRoute)


class ComparisonStart(operation.CompareRequest, SentEmbeddings):
    """Request to compare; labelled queries can also come as embeddings of the one bundle of all variants."""


class VariantChoice(RequestFields):
    """Choice of the compared variant that is put in force."""

    variant: StrictInt | None = Field(None, ge=0, description="Its number; the recommended one when null.")


class ActivePipelineBody(Body):
    """Pipeline that `auto` stands for in the searches of a gallery."""

    version: int = Field(description="The version that is searched.")
    pipeline: str
    source: PipelineSource
    comparison: str | None = Field(description="The comparison that it comes from.")
    calibration: str | None = Field(description="The calibration that decides its searches.")
    since: datetime | None = Field(description="When it was put in force.")
    threshold: float | None = Field(description="What decides its searches.")
    state: CalibrationState
    reason: str | None = Field(description="Why a pipeline that was chosen is not used.")


@router.post("/comparisons", status_code=202)
@large_body
def start_comparison(
    gallery: str,
    start: ComparisonStart,
    request: Request,
    state: StateDependency,
    response: Response,
) -> Job:
    """Try variants on the same queries, in a job whose id is that of the comparison.

    Other versions also get calibrations of their own, which come into force when they are activated.
    Another job on the gallery: 409, with its id as `job`.
    """
    return begin_job(request, response, state, operation.OPERATION, gallery, start)


@router.get("/comparisons")
def list_comparisons(gallery: str, state: StateDependency) -> list[Comparison]:
    """All comparisons, newest first."""
    return ComparisonStore(state.galleries.gallery(gallery).path).history(passes_over_damaged=True)


@router.get("/comparisons/{comparison}")
def get_comparison(gallery: str, comparison: str, state: StateDependency) -> Comparison:
    """Read a comparison."""
    return ComparisonStore(state.galleries.gallery(gallery).path).find(comparison)


@router.post("/comparisons/{comparison}/activate")
def activate_variant(
    gallery: str, comparison: str, body: VariantChoice, state: StateDependency
) -> ActivePipelineBody:
    """Use a compared variant and its threshold from the next search on."""
    opened = state.galleries.gallery(gallery)
    put_in_force(opened, state.galleries.bundles, ComparisonStore(opened.path).find(comparison), body.variant)
    return _described(state.galleries.matcher(gallery))


@router.get("/pipeline")
def get_pipeline(gallery: str, state: StateDependency) -> ActivePipelineBody:
    """Read the pipeline that searches without further options are made with."""
    return _described(state.galleries.matcher(gallery))


@router.delete("/pipeline")
def reset_pipeline(gallery: str, state: StateDependency) -> ActivePipelineBody:
    """Let the settings of the service choose the pipeline again; its own threshold decides then."""
    matcher = state.galleries.matcher(gallery)
    matcher.pipeline_store.clear()
    return _described(matcher)


def _described(matcher: Matcher) -> ActivePipelineBody:
    found = matcher.active_pipeline
    threshold, chosen = matcher.threshold(found.pipeline), found.chosen
    return ActivePipelineBody(
        version=matcher.snapshot.manifest.version,
        pipeline=found.pipeline.key,
        source=found.source,
        comparison=None if chosen is None else chosen.comparison,
        calibration=threshold.calibration,
        since=None if chosen is None else chosen.at,
        threshold=threshold.value,
        state=threshold.state,
        reason=found.reason,
    )
