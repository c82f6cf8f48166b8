"""Duplicates of a gallery: look for copies in a job, and see what could go; nothing is deleted here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import Field

from vicinal.service.duplicates.finding import DuplicateStore
from vicinal.service.duplicates.record import DuplicateGroup, DuplicateOptions, DuplicateSummary
from vicinal.service.duplicates.verdicts import CopyVerdict, CopyVerdicts
from vicinal.service.http.access import note_items, who_asks
from vicinal.service.http.gate import AdminRoute, Routes
from vicinal.service.http.routes.jobs import After, PageSize, begin_job, page_of
from vicinal.service.http.state import StateDependency
from vicinal.service.jobs.records import Job
from vicinal.service.operations import duplicates as operation
from vicinal.service.request_fields import RequestFields

router = Routes(
    prefix="/v1/admin/galleries/{gallery}/duplicates", tags=["duplicates"], route_class=AdminRoute
)


class DuplicatePageBody(DuplicateSummary):
    """Findings, and one page of their groups."""

    n_groups: int = Field(description="Groups on all pages.")
    groups: tuple[DuplicateGroup, ...] = Field(description="Largest first, then most certain.")
    next: int | None = Field(description="Cursor of the next page; null at the end.")


class NoCopies(RequestFields):
    """Photos that are no copies of one of them."""

    first: str = Field(max_length=1024, description="Id of an item.")
    others: list[str] = Field(
        min_length=1, max_length=1000, description="Ids of items that it is no copy of, nor they of it."
    )


@router.post("", status_code=202)
def start_duplicates(
    gallery: str, options: DuplicateOptions, request: Request, state: StateDependency, response: Response
) -> Job:
    """Look for copies in a job, whose id the record gets. Another job on the gallery: 409."""
    return begin_job(request, response, state, operation.OPERATION, gallery, options)


@router.get("")
def list_duplicates(gallery: str, state: StateDependency) -> list[DuplicateSummary]:
    """The newest records without their groups, newest first."""
    return [*DuplicateStore(state.galleries.gallery(gallery).path).history(passes_over_damaged=True)]


@router.get("/verdicts")
def list_copy_verdicts(gallery: str, state: StateDependency) -> list[CopyVerdict]:
    """Verdicts of persons on copies, in the order in which they were given."""
    return [*CopyVerdicts(state.galleries.gallery(gallery)).all()]


@router.post("/verdicts")
def call_no_copies(gallery: str, body: NoCopies, request: Request, state: StateDependency) -> CopyVerdict:
    """Say that a photo is no copy of others: no look finds them as such again. Searches are as before."""
    note_items(request, [body.first, *body.others])
    view = state.galleries.matcher(gallery).view
    return CopyVerdicts(state.galleries.gallery(gallery)).add(
        view, body.first, body.others, by=who_asks(request)
    )


@router.delete("/verdicts/{number}", status_code=204)
def take_back_copy_verdict(gallery: str, number: int, state: StateDependency) -> None:
    """Take back that photos are no copies, anybody's."""
    CopyVerdicts(state.galleries.gallery(gallery)).take_back(number)


@router.get("/{record}")
def get_duplicates(
    gallery: str,
    record: str,
    state: StateDependency,
    after: After = 0,
    size: PageSize = 100,
    left: Annotated[
        bool,
        Query(description="Without photos that have gone since, and what persons called no copies."),
    ] = False,
) -> DuplicatePageBody:
    """Read a record, its groups page by page."""
    opened = state.galleries.gallery(gallery)
    found = DuplicateStore(opened.path).find(record)
    groups: Sequence[DuplicateGroup] = found.groups
    if left:
        groups = CopyVerdicts(opened).left(groups, state.galleries.matcher(gallery).view)
    page, further = page_of(groups, after, size)
    return DuplicatePageBody(**{**dict(found), "n_groups": len(groups), "groups": page, "next": further})
