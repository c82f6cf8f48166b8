"""Calibrations of a gallery: make one, look at them, put one in force, and try thresholds before that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeVar

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, StrictFloat

from vicinal.service.http.gate import AdminRoute, Routes, large_body
from vicinal.service.http.request_bodies import (
    FORM,
    JSON,
    Labels,
    SentEmbeddings,
    body_schema,
    check_form,
    content_type,
    files_of,
    json_body,
    read_form,
    validated,
)
from vicinal.service.http.routes.jobs import begin_job
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs.records import Job
from vicinal.service.measuring.dry_run import DryRunResult, TriedThreshold
from vicinal.service.measuring.dry_run import dry_run as dry_run_of
from vicinal.service.measuring.records.points import PointsBody, points_body
from vicinal.service.operations import calibrate, check
from vicinal.service.reports.report import (
    CalibrationHistoryBody,
    CalibrationStateBody,
    ReportBody,
    describe_history,
    describe_record,
    report_record,
)
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.surfaces.query_uploads import form_of

router = Routes(prefix="/v1/admin/galleries/{gallery}", tags=["calibrations"], route_class=AdminRoute)


class CalibrationStart(calibrate.CalibrateRequest, SentEmbeddings):
    """Request to calibrate; with queries from a source, as embeddings with labels, or from the gallery."""

    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks makes a query without a mate."
    )


class CheckStart(check.NewQueries, SentEmbeddings):
    """New labelled queries to try a calibration's promise with: from a source, or embeddings with labels."""

    labels: Labels | None = Field(
        None, description="Label of each embedding; one that the gallery lacks is a thing that is not there."
    )


class ThresholdByHand(PipelineChoice):
    """A threshold that somebody chose; no rate is claimed for it."""

    threshold: StrictFloat = Field(ge=0.0, le=1.0, description="Lowest accepted score.")


class DryRun(PipelineChoice, TriedThreshold):
    """A threshold to try on stored scores, by exactly one of threshold, calibration and target."""


# The size of the whole request is limited too.
_MOST_IMAGES = 10_000
_FIELDS = form_of(calibrate.CalibrateRequest)
_LABELS = {"type": "array", "items": {"type": "string"}, "description": "One an image, or one for all."}
_BODY = body_schema(
    {"label": _LABELS, **_FIELDS},
    several=True,
    required=("image", "label"),
    json=CalibrationStart,
    may_be_empty=True,
)
_CHECK_BODY = body_schema({"label": _LABELS}, several=True, required=("image", "label"), json=CheckStart)
_Start = TypeVar("_Start", CalibrationStart, CheckStart)


@router.post("/calibrations", status_code=202, openapi_extra=_BODY)
@large_body
async def start_calibration(
    gallery: str, request: Request, state: StateDependency, response: Response
) -> Job:
    """Find the threshold for a target, in a job whose id is that of the calibration.

    Labelled queries come as JSON (a source, or embeddings with labels), as a form with images and their
    labels, or from the gallery: every labelled item is then left out once. Another job on the gallery: 409.
    """
    images, start = await _read_start(request, CalibrationStart, _FIELDS)
    return await run_in_threadpool(
        begin_job, request, response, state, calibrate.OPERATION, gallery, start, images=images
    )


@router.get("/calibrations")
def list_calibrations(gallery: str, state: StateDependency) -> CalibrationHistoryBody:
    """All calibrations, newest first, and what was in force when."""
    return describe_history(state.galleries.matcher(gallery))


@router.post("/calibrations/dry_run")
def dry_run(gallery: str, body: DryRun, state: StateDependency) -> DryRunResult:
    """Try a threshold beside the one in force, on stored scores: rates, and how many answers change."""
    matcher = state.galleries.matcher(gallery)
    return dry_run_of(matcher.thresholds, matcher.chosen(body), body)


@router.post("/calibrations/roll_back")
def roll_back(gallery: str, body: PipelineChoice, state: StateDependency) -> CalibrationStateBody:
    """Put the calibration in force again that was before the present one."""
    matcher = state.galleries.matcher(gallery)
    return describe_record(matcher, matcher.roll_back(body))


@router.get("/calibrations/{calibration}")
def get_calibration(gallery: str, calibration: str, state: StateDependency) -> CalibrationStateBody:
    """Read a calibration with its evidence, and whether it still holds."""
    matcher = state.galleries.matcher(gallery)
    return describe_record(matcher, matcher.calibrations.find(calibration))


@router.get("/calibrations/{calibration}/report")
def get_report(gallery: str, calibration: str, state: StateDependency) -> ReportBody:
    """All that is known of one calibration."""
    matcher = state.galleries.matcher(gallery)
    record = matcher.calibrations.find(calibration)
    return report_record(matcher, record, state.galleries.drift.drift(matcher, record))


@router.get("/calibrations/{calibration}/points")
def get_points(
    gallery: str,
    calibration: str,
    state: StateDependency,
    most: Annotated[int, Query(ge=1, le=100_000, description="Queries that are told at most.")] = 10_000,
) -> PointsBody:
    """Each query of a calibration with its best mate and its best stranger, and the rates by threshold.

    They tell which searches another threshold would decide in another way. The rates take a moment.
    """
    store = state.galleries.matcher(gallery).calibrations
    record = store.find(calibration)
    return points_body(store.points(record), store.scores(record), record.threshold, most=most)


@router.post("/calibrations/{calibration}/check", status_code=202, openapi_extra=_CHECK_BODY)
@large_body
async def start_check(
    gallery: str, calibration: str, request: Request, state: StateDependency, response: Response
) -> Job:
    """Try what a calibration promised with new labelled queries; nothing is changed.

    They come as JSON or as a form, as for a calibration. The job's result says in `verdict` and `sentence`
    whether the promise held; it is kept as the calibration's `last_check`. Another job on the gallery: 409.
    """
    images, start = await _read_start(request, CheckStart)
    return await run_in_threadpool(
        begin_job,
        *(request, response, state, check.OPERATION, gallery, start),
        images=images,
        leave_out=[*PipelineChoice.model_fields],
        calibration=calibration,
    )


@router.post("/calibrations/{calibration}/activate")
def activate_calibration(gallery: str, calibration: str, state: StateDependency) -> CalibrationStateBody:
    """Use a calibration from the next search with its pipeline on."""
    matcher = state.galleries.matcher(gallery)
    return describe_record(matcher, matcher.activate(calibration))


@router.put("/threshold")
def put_threshold(gallery: str, body: ThresholdByHand, state: StateDependency) -> CalibrationStateBody:
    """Use a threshold that was chosen by hand; every answer says so, and no rate is claimed."""
    matcher = state.galleries.matcher(gallery)
    record = matcher.thresholds.set_by_hand(matcher.chosen(body), body.threshold)
    return describe_record(matcher, record)


async def _read_start(
    request: Request, model: type[_Start], fields: Iterable[str] = ()
) -> tuple[list[bytes], _Start]:
    if content_type(request, JSON, FORM) == JSON:
        return [], await json_body(request, model, may_be_empty=True)
    async with read_form(request, max_files=_MOST_IMAGES, max_fields=2 * _MOST_IMAGES) as form:
        check_form(form, ("image", "label", *fields))
        images = files_of(form)
        labels = [str(one) for one in form.getlist("label")]
        if len(labels) == 1:
            labels *= len(images)
        start = validated(model, {name: form[name] for name in fields if name in form}, are_texts=True)
        return [await image.read() for image in images], start.model_copy(update={"labels": labels})
