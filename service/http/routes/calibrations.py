"""Calibrations of a gallery: make one, look at them, put one in force, and try thresholds before that."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from vicinal.models.errors import UnsupportedFormatError
from vicinal.service.calibrator.options import PipelineChoice
from vicinal.service.errors import RequestError
from vicinal.service.http.bodies.calibrations import CalibrationStart, DryRun, ThresholdByHand
from vicinal.service.http.media_types import preferred_media_type
from vicinal.service.http.requests import CalibrationJobDependency, GalleriesDependency, JobsDependency
from vicinal.service.http.routes.pipelines import router as pipelines_router
from vicinal.service.jobs import Job, JobStore, new_job
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.reports.page import PAGE_POLICY, render_report
from vicinal.service.reports.report import (
    CalibrationHistoryBody,
    CalibrationStateBody,
    ReportBody,
    describe_history,
    describe_record,
    report_record,
)
from vicinal.service.scoring.pipeline import RefineChoice, RerankChoice
from vicinal.service.tasks.calibrate import chosen_pipeline
from vicinal.service.tasks.calibration_job import CALIBRATE, CalibrationJob, CalibrationRequest
from vicinal.service.thresholds.drift import DriftState
from vicinal.service.thresholds.dry_run import DryRunResult
from vicinal.service.thresholds.dry_run import dry_run as dry_run_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/admin/galleries/{gallery}", tags=["calibrations"])
# Before the routes of single calibrations, whose ids are free.
router.include_router(pipelines_router)

ReportFormat = Literal["html", "json"]
# The size of the whole request is limited too.
_MOST_IMAGES = 10_000
_FORM_FIELDS = ("target", "refine", "steps", "rerank", "max_queries", "activate")
_START_BODY: dict[str, Any] = {
    "requestBody": {
        "content": {
            "application/json": {"schema": CalibrationStart.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image", "label"],
                    "properties": {
                        "image": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "label": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "One an image, or one for all.",
                        },
                        "target": {"type": "string", "default": "fpir=5%"},
                        "refine": {"type": "string", "enum": list(get_args(RefineChoice)), "default": "auto"},
                        "steps": {"type": "integer"},
                        "rerank": {"type": "string", "enum": list(get_args(RerankChoice)), "default": "auto"},
                        "max_queries": {"type": "integer", "default": 2000},
                        "activate": {"type": "boolean", "default": True},
                    },
                }
            },
        }
    }
}


@router.post("/calibrations", status_code=202, openapi_extra=_START_BODY)
async def start_calibration(
    gallery: str,
    request: Request,
    galleries: GalleriesDependency,
    jobs: JobsDependency,
    calibration: CalibrationJobDependency,
    response: Response,
) -> Job:
    """Find the threshold for a target, in a job whose id is that of the calibration.

    Labelled queries come as JSON (a source, or embeddings with labels), as a form with images and their
    labels, or from the gallery: every labelled item is then left out once. Another job on the gallery: 409.
    """
    images, labels, start = await _read_start(request)
    matcher = await run_in_threadpool(galleries.matcher, gallery)
    job = await run_in_threadpool(_enqueue, jobs, calibration, matcher, start, images, labels)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("/calibrations")
def list_calibrations(gallery: str, galleries: GalleriesDependency) -> CalibrationHistoryBody:
    """All calibrations, newest first, and what was in force when."""
    return describe_history(galleries.matcher(gallery).calibrations)


@router.post("/calibrations/dry_run")
def dry_run(gallery: str, body: DryRun, galleries: GalleriesDependency) -> DryRunResult:
    """Try a threshold beside the one in force, on stored scores: rates, and how many answers change."""
    matcher = galleries.matcher(gallery)
    return dry_run_of(matcher.thresholds, chosen_pipeline(matcher, body), body)


@router.post("/calibrations/roll_back")
def roll_back(gallery: str, body: PipelineChoice, galleries: GalleriesDependency) -> CalibrationStateBody:
    """Put the calibration in force again that was before the present one."""
    matcher = galleries.matcher(gallery)
    return describe_record(matcher, matcher.calibrations.roll_back(chosen_pipeline(matcher, body)))


@router.get("/calibrations/{calibration}")
def get_calibration(gallery: str, calibration: str, galleries: GalleriesDependency) -> CalibrationStateBody:
    """One calibration with its evidence, and whether it still holds."""
    matcher = galleries.matcher(gallery)
    return describe_record(matcher, matcher.calibrations.find(calibration))


@router.get(
    "/calibrations/{calibration}/report",
    response_model=ReportBody,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
def get_report(
    gallery: str,
    calibration: str,
    galleries: GalleriesDependency,
    response: Response,
    accept: Annotated[str | None, Header()] = None,
    form: Annotated[
        ReportFormat | None,
        Query(alias="format", description="In place of what the header `Accept` prefers."),
    ] = None,
) -> ReportBody | HTMLResponse:
    """All that is known of one calibration, as JSON or as a self-contained page."""
    matcher = galleries.matcher(gallery)
    record = matcher.calibrations.find(calibration)
    report = report_record(matcher, record, galleries.drift.drift(matcher, record))
    preferred = preferred_media_type(accept, ("application/json", "text/html"))
    if (form or preferred.partition("/")[2]) == "html":
        page = render_report(report, matcher.gallery)
        return HTMLResponse(page, headers={"Content-Security-Policy": PAGE_POLICY, "Vary": "Accept"})
    response.headers["Vary"] = "Accept"
    return report


@router.get("/calibrations/{calibration}/drift")
def get_drift(gallery: str, calibration: str, galleries: GalleriesDependency) -> DriftState:
    """Whether searches still look like the queries of the calibration, since it was put in force."""
    matcher = galleries.matcher(gallery)
    return galleries.drift.drift(matcher, matcher.calibrations.find(calibration))


@router.post("/calibrations/{calibration}/activate")
def activate_calibration(
    gallery: str, calibration: str, galleries: GalleriesDependency
) -> CalibrationStateBody:
    """Use a calibration from the next search with its pipeline on."""
    matcher = galleries.matcher(gallery)
    return describe_record(matcher, matcher.thresholds.activate(calibration))


@router.put("/threshold")
def put_threshold(
    gallery: str, body: ThresholdByHand, galleries: GalleriesDependency
) -> CalibrationStateBody:
    """Use a threshold that was chosen by hand; every answer says so, and no rate is claimed."""
    matcher = galleries.matcher(gallery)
    record = matcher.thresholds.set_by_hand(chosen_pipeline(matcher, body), body.threshold)
    return describe_record(matcher, record)


def _enqueue(
    jobs: JobStore,
    calibration: CalibrationJob,
    matcher: Matcher,
    start: CalibrationStart,
    images: list[bytes],
    labels: list[str],
) -> Job:
    if start.embeddings is not None and start.queries is not None:
        raise RequestError("give queries or embeddings, not both")
    if (start.embeddings is None) != (start.labels is None):
        raise RequestError("embeddings and labels go together: give both")
    is_upload = bool(images) or start.embeddings is not None
    options = start.model_dump(exclude={"embeddings", "labels"})
    request = CalibrationRequest.model_validate({**options, "is_upload": is_upload})
    calibration.check(matcher, request, labels or start.labels)
    job = new_job(CALIBRATE, matcher.gallery.name, request.model_dump())
    with ExitStack() as undo:
        undo.callback(calibration.clean, job)
        if images:
            calibration.uploads.keep_images(job, images, labels)
        elif start.embeddings is not None:
            dim = matcher.snapshot.manifest.dim
            calibration.uploads.keep_embeddings(job, start.embeddings, start.labels or [], dim=dim)
        created = jobs.create(job)
        undo.pop_all()
    return created


async def _read_start(request: Request) -> tuple[list[bytes], list[str], CalibrationStart]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _read_form(request)
    if kind not in ("application/json", ""):
        raise UnsupportedFormatError(f"the body is {kind}: send application/json or multipart/form-data")
    body = await request.body()
    try:
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    return [], [], _validated(fields)


async def _read_form(request: Request) -> tuple[list[bytes], list[str], CalibrationStart]:
    # Leaving the block removes the files that large uploads are kept in.
    async with request.form(max_files=_MOST_IMAGES, max_fields=2 * _MOST_IMAGES) as form:
        unknown = set(form) - {"image", "label", *_FORM_FIELDS}
        if unknown:
            raise RequestError(
                f"unknown fields {sorted(unknown)}: expected image, label, {', '.join(_FORM_FIELDS)}"
            )
        images = [one for one in form.getlist("image") if isinstance(one, UploadFile)]
        if not images or len(images) < len(form.getlist("image")):
            raise RequestError("the form has no file 'image'")
        labels = [str(one) for one in form.getlist("label")]
        if len(labels) == 1:
            labels *= len(images)
        start = _validated({name: form[name] for name in _FORM_FIELDS if name in form})
        return [await image.read() for image in images], labels, start


def _validated(fields: Any) -> CalibrationStart:
    try:
        return CalibrationStart.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
