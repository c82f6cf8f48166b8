"""Duplicates of a gallery: look for copies in a job, and see what could go; nothing is deleted here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from vicinal.service.duplicates.finding import DuplicateStore
from vicinal.service.duplicates.record import DuplicateGroup, DuplicateOptions, DuplicateSummary
from vicinal.service.http.gate import AdminRoute
from vicinal.service.http.routes.jobs import begin_job
from vicinal.service.http.routes.operations import html_page
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs.records import Job
from vicinal.service.operations import duplicates as operation
from vicinal.service.reports.page import page_style, render_duplicates

router = APIRouter(
    prefix="/v1/admin/galleries/{gallery}/duplicates", tags=["duplicates"], route_class=AdminRoute
)


class DuplicatePageBody(DuplicateSummary):
    """What was found, and one page of its groups."""

    n_groups: int = Field(description="Groups on all pages.")
    groups: tuple[DuplicateGroup, ...] = Field(description="Largest first, then most certain.")
    next: int | None = Field(description="Cursor of the next page; null at the end.")


@router.post("", status_code=202)
def start_duplicates(
    gallery: str, options: DuplicateOptions, request: Request, state: StateDependency, response: Response
) -> Job:
    """Look for copies in a job, whose id the record gets. Another job on the gallery: 409."""
    return begin_job(request, response, state, operation.OPERATION, gallery, options)


@router.get("")
def list_duplicates(gallery: str, state: StateDependency) -> list[DuplicateSummary]:
    """The newest records without their groups, newest first."""
    return [*DuplicateStore(state.galleries.gallery(gallery)).history(passes_over_damaged=True)]


@router.get("/{record}")
def get_duplicates(
    gallery: str,
    record: str,
    state: StateDependency,
    after: Annotated[int, Query(ge=0, description="`next` of the page before.")] = 0,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DuplicatePageBody:
    """One record, its groups page by page."""
    found = DuplicateStore(state.galleries.gallery(gallery)).find(record)
    stop = after + size
    page = {
        "n_groups": len(found.groups),
        "groups": found.groups[after:stop],
        "next": stop if stop < len(found.groups) else None,
    }
    return DuplicatePageBody(**{**dict(found), **page})


@router.get("/{record}/report", response_class=HTMLResponse)
def get_duplicates_page(gallery: str, record: str, state: StateDependency) -> HTMLResponse:
    """One record as a page with its pictures side by side, which needs no network."""
    opened = state.galleries.gallery(gallery)
    page = render_duplicates(DuplicateStore(opened).find(record), opened)
    return html_page(page, shipped=page_style(), img="data:")
