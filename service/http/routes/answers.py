"""Answers to kept searches: what persons say of them, what is known by that, and what to ask about next."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import HTTPException, Query, Request, Response
from pydantic import AwareDatetime, BeforeValidator, Field

from vicinal.service.answering.review import (
    MOST_QUESTIONS,
    GivenAnswerBody,
    KeptSearchBody,
    KeptSearchPageBody,
    KnownAnswersBody,
    LabelCountBody,
    SearchQuestionsBody,
    SearchReview,
    Shown,
)
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError
from vicinal.service.http.access import call_of
from vicinal.service.http.gate import AdminRoute, AnswerRoute, Routes, SearchRoute
from vicinal.service.http.state import State, StateDependency
from vicinal.service.operations import answer
from vicinal.service.problem_types import ERRORS, detail_of, problem_type
from vicinal.service.request_fields import Body, RequestFields

router = Routes(prefix="/v1/galleries/{gallery}", tags=["answers"], route_class=AnswerRoute)
labels_router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)
admin_router = Routes(prefix="/v1/admin/galleries/{gallery}", tags=["answers"], route_class=AdminRoute)
# Answers that are given at once.
_MOST_ANSWERS = 200


class AnswerBatch(RequestFields):
    """Answers to several searches."""

    answers: list[answer.AnswerRequest] = Field(
        min_length=1, max_length=_MOST_ANSWERS, description="One a search."
    )


class RefusedAnswerBody(Body):
    """Answer that could not be kept."""

    place: int = Field(description="Its place in what was sent, from 0.")
    type: str = Field(description="Problem type, as an answer of the service would carry it.")
    reason: str


class GivenAnswersBody(Body):
    """Outcome of each of several answers."""

    given: list[GivenAnswerBody | None] = Field(
        description="In the order in which they were sent; null for one that was refused."
    )
    refused: list[RefusedAnswerBody]
    sentence: str = Field(description="What is known by now.")


class TakenBackBody(Body):
    """Sum of what is known without an answer that was taken back."""

    sentence: str


class LabelListBody(Body):
    """Labels of a gallery."""

    labels: list[LabelCountBody]


class DeletedSearchesBody(Body):
    """Outcome of a deletion of kept searches."""

    deleted: int = Field(description="Searches that are gone, with their pictures and answers.")


@router.post("/answers")
def answer_search(
    gallery: str, body: answer.AnswerRequest, request: Request, state: StateDependency
) -> GivenAnswerBody:
    """Say what a kept search shows; what the same person said of it before is replaced."""
    call_of(request.scope).items.update(search=body.search_id)
    place = state.place(gallery)
    # What was just searched for is kept first, here or through whom it was searched.
    state.keeper.wait_for(SearchStore(place.gallery.path), body.search_id)
    given = answer.run(place, body, by=_who(request))
    state.promises.answered(gallery)
    return given


@router.post("/answer-batches")
def answer_searches(
    gallery: str, body: AnswerBatch, request: Request, state: StateDependency
) -> GivenAnswersBody:
    """Say what several kept searches show, each by itself: one that is refused stops no other."""
    call = call_of(request.scope)
    call.items.update(searches=[one.search_id for one in body.answers])
    review, by = _review(state, gallery), _who(request)
    given: list[GivenAnswerBody | None] = []
    refused = []
    for place, said in enumerate(body.answers):
        try:
            state.keeper.wait_for(review.store, said.search_id)
            given.append(answer.keep(review, said, by=by, sums_up=False))
        except ERRORS as error:
            given.append(None)
            reason = detail_of(error, in_full=call.in_full)
            refused.append(RefusedAnswerBody(place=place, type=problem_type(error), reason=reason))
    state.promises.answered(gallery)
    known = {"sentence": review.sentence()}
    return GivenAnswersBody(
        given=[one and one.model_copy(update=known) for one in given], refused=refused, **known
    )


@router.delete("/answers/{number}")
def take_back_search_answer(
    gallery: str, number: int, request: Request, state: StateDependency
) -> TakenBackBody:
    """Take an answer back: one's own, or with the scope `admin` anybody's."""
    grant = call_of(request.scope).grant
    own_only = grant is not None and "admin" not in grant.scopes
    review = _review(state, gallery)
    state.keeper.wait_for_answer(review.store, number)
    sentence = review.take_back(number, by=_who(request) if own_only else None)
    state.promises.answered(gallery)
    return TakenBackBody(sentence=sentence)


@labels_router.get("/labels")
def list_labels(
    gallery: str,
    state: StateDependency,
    like: Annotated[str, Query(max_length=1024, description="Text that labels hold or resemble.")] = "",
    size: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> LabelListBody:
    """Labels that items have: those that hold a text, the shortest first, and those spelled like it."""
    return LabelListBody(labels=_review(state, gallery).labels_like(like, size))


@admin_router.get("/answers")
def get_search_answers(gallery: str, state: StateDependency) -> KnownAnswersBody:
    """Sum of what the answers to kept searches say so far."""
    return _review(state, gallery).known()


@admin_router.get("/answers/next")
def next_searches(
    gallery: str,
    request: Request,
    state: StateDependency,
    n: Annotated[int, Query(ge=1, le=MOST_QUESTIONS, description="Most searches.")] = 1,
) -> SearchQuestionsBody:
    """Kept searches that are worth asking about next; that they were drawn is noted.

    They are drawn by chance within strata of their score under the pipeline in force, half of them near the
    threshold, one of a visit. What was drawn and not answered comes first; one in ten comes a second time.
    """
    return _review(state, gallery).next(n, by=_who(request))


@admin_router.get("/searches")
def list_searches(
    gallery: str,
    state: StateDependency,
    shown: Annotated[
        Shown | None,
        Query(
            description="Only those that got no match, or an unsure one, or one that a person called wrong."
        ),
    ] = None,
    after: Annotated[str | None, Query(max_length=128, description="`next` of the page before.")] = None,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
) -> KeptSearchPageBody:
    """Kept searches, newest first, with what was said of them."""
    return _review(state, gallery).page(after, size, shown)


@admin_router.get("/searches/{search}")
def get_search(gallery: str, search: str, state: StateDependency) -> KeptSearchBody:
    """Read a kept search, and what was said of it."""
    return _review(state, gallery).search(search)


@admin_router.get("/searches/{search}/image", response_class=Response)
def get_search_image(gallery: str, search: str, state: StateDependency) -> Response:
    """Picture of what was searched for, a small JPEG."""
    picture = _review(state, gallery).store.picture(search)
    if picture is None:
        raise HTTPException(404, f"search '{search}' was for an embedding: it has no picture")
    # It may be deleted on demand, and is then nowhere.
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "no-store"})


def _written_out(moment: object) -> object:
    """Refuse a number, which would be taken for the seconds since 1970."""
    if isinstance(moment, str) and not re.match(r"\d{4}-\d\d-\d\d", moment):
        raise ValueError("write the moment as 2026-12-31T23:59:59Z")
    return moment


@admin_router.delete("/searches")
def delete_searches(
    gallery: str,
    request: Request,
    state: StateDependency,
    ids: Annotated[
        str | None,
        Query(max_length=4096, pattern="^[0-9a-f]+(,[0-9a-f]+)*$", description="Only these, with commas."),
    ] = None,
    before: Annotated[
        AwareDatetime | None,
        BeforeValidator(_written_out),
        Query(description="Only those that came before this moment."),
    ] = None,
) -> DeletedSearchesBody:
    """Delete kept searches with their pictures and answers, all of them or some.

    They cannot be brought back. Items that were made of them stay.
    """
    if ids is not None and before is not None:
        raise RequestError("give ids or before, not both")
    store, chosen = (
        SearchStore(state.galleries.gallery(gallery).path),
        None if ids is None else ids.split(","),
    )
    # What was answered and is not kept yet is meant too.
    state.keeper.wait()
    deleted = store.delete(chosen, before=before)
    call_of(request.scope).items.update(searches=chosen or "all", before=before, n_deleted=deleted)
    return DeletedSearchesBody(deleted=deleted)


def _review(state: State, gallery: str) -> SearchReview:
    return SearchReview(state.galleries.matcher(gallery))


def _who(request: Request) -> str:
    grant = call_of(request.scope).grant
    return answer.NOBODY if grant is None else grant.name
