"""Labelling: a threshold for a gallery without labels, from answers about pairs of its photos."""

from __future__ import annotations

from fastapi import HTTPException, Request
from pydantic import Field

from vicinal.service.http.access import who_asks
from vicinal.service.http.gate import AdminRoute, Routes
from vicinal.service.http.state import State, StateDependency
from vicinal.service.labelling.session import LabelSession, LabelState
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.operations import label
from vicinal.service.reports.report import CalibrationStateBody, describe_record
from vicinal.service.request_fields import RequestFields

router = Routes(prefix="/v1/admin/galleries/{gallery}/labelling", tags=["labelling"], route_class=AdminRoute)


class LabelAnswer(RequestFields):
    """An answer to one question."""

    number: int = Field(strict=True, ge=0, description="Number of the question.")
    same: bool | None = Field(
        strict=True, description="Whether both show the same thing; null where it cannot be told."
    )


@router.post("")
def start_labelling(gallery: str, body: label.LabelRequest, state: StateDependency) -> LabelState:
    """Begin a session, or go on with the one under way for this target.

    Its questions are pairs that searches of the gallery would show. A session belongs to the searched version
    and pipeline: when one of these changes, another is begun.
    """
    return label.run(state.place(gallery), body).state()


@router.get("")
def get_labelling(gallery: str, state: StateDependency) -> LabelState:
    """Tell how far the session under way is, and what it asks next."""
    return _current(state, gallery)[0].state()


@router.post("/answers")
def add_answer(gallery: str, body: LabelAnswer, request: Request, state: StateDependency) -> LabelState:
    """Answer the question that is to be answered now."""
    session, _ = _current(state, gallery)
    session.answer(body.number, body.same, by=who_asks(request))
    return session.state()


@router.delete("/answers/last")
def take_back_answer(gallery: str, state: StateDependency) -> LabelState:
    """Take the last answer back; its question comes again."""
    session, _ = _current(state, gallery)
    session.undo()
    return session.state()


@router.post("/finish")
def finish_labelling(gallery: str, state: StateDependency) -> CalibrationStateBody:
    """Make a calibration of the answers, and put it in force."""
    session, matcher = _current(state, gallery)
    return describe_record(matcher, session.finish(matcher))


def _current(state: State, gallery: str) -> tuple[LabelSession, Matcher]:
    matcher = state.galleries.matcher(gallery)
    session = LabelSession.current(matcher)
    if session is None:
        raise HTTPException(
            404, f"no labelling of gallery '{gallery}' is under way: begin one by POST to this address"
        )
    return session, matcher
