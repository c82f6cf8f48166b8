"""Answers to kept searches: what persons say of them, what is known by that, and what to ask about next."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated

from fastapi import Query, Request
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
from vicinal.service.http.access import call_of, who_asks
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
async def answer_search(
    gallery: str, body: answer.AnswerRequest, request: Request, state: StateDependency
) -> GivenAnswerBody:
    """Say what a kept search shows; what the same person said of it before is replaced."""
    call_of(request.scope).items.update(search=body.search_id)
    # What was just searched for is kept first.
    await state.keeper.catch_up()
    given: list[GivenAnswerBody] = await state.calls(request.scope).called(
        request, lambda: answer.keep(_said_in(state, gallery, request), body, by=who_asks(request))
    )
    if not given[0].is_hint:
        state.promises.answered(gallery)
    return given[0]


@router.post("/answer-batches")
async def answer_searches(
    gallery: str, body: AnswerBatch, request: Request, state: StateDependency
) -> GivenAnswersBody:
    """Say what several kept searches show, each by itself: one that is refused stops no other.

    Where the client goes meanwhile, what is left is not kept.
    """
    ids = [one.search_id for one in body.answers]
    call_of(request.scope).items.update(searches=ids)
    await state.keeper.catch_up()
    # All are kept by what the gallery is now.
    review = cache(partial(_said_in, state, gallery, request))
    said = [partial(_kept_or_refused, review, request, *one) for one in enumerate(body.answers)]
    *found, sentence = await state.calls(request.scope).called(request, *said, lambda: review().sentence())
    if not review().is_hint:
        state.promises.answered(gallery)
    # Without one nobody is there any more.
    known = {"sentence": sentence or ""}
    given = [one if isinstance(one, GivenAnswerBody) else None for one in found]
    return GivenAnswersBody(
        given=[one and one.model_copy(update=known) for one in given],
        refused=[one for one in found if isinstance(one, RefusedAnswerBody)],
        **known,
    )


@router.delete("/answers/{number}")
async def take_back_search_answer(
    gallery: str, number: int, request: Request, state: StateDependency
) -> TakenBackBody:
    """Take an answer back: one's own, or with the scope `admin` anybody's."""
    grant = call_of(request.scope).grant
    by = None if grant is None or "admin" in grant.scopes else grant.name
    (sentence,) = await state.calls(request.scope).called(
        request, lambda: _review(state, gallery).take_back(number, by=by)
    )
    state.promises.answered(gallery)
    return TakenBackBody(sentence=sentence)


@labels_router.get("/labels")
async def list_labels(
    gallery: str,
    request: Request,
    state: StateDependency,
    like: Annotated[str, Query(max_length=1024, description="Text that labels hold or resemble.")] = "",
    size: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> LabelListBody:
    """Labels that items have: those that hold a text, the shortest first, and those spelled like it."""
    (found,) = await state.calls(request.scope).called(
        request, lambda: _review(state, gallery).labels_like(like, size)
    )
    return LabelListBody(labels=found)


@admin_router.get("/answers")
def get_search_answers(gallery: str, state: StateDependency) -> KnownAnswersBody:
    """Sum of what the answers to kept searches say so far."""
    return _review(state, gallery).known()


@admin_router.delete("/answers")
def take_back_answers_of(
    gallery: str,
    by: Annotated[str, Query(max_length=1024, description="Name that they are kept under.")],
    request: Request,
    state: StateDependency,
) -> TakenBackBody:
    """Take back all answers of a key, or of who used the command, and what they called different."""
    call_of(request.scope).items.update(by=by)
    sentence = _review(state, gallery).take_back_all(by)
    state.promises.answered(gallery)
    return TakenBackBody(sentence=sentence)


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
    return _review(state, gallery).next(n, by=who_asks(request))


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


def _kept_or_refused(
    review: Callable[[], SearchReview], request: Request, place: int, said: answer.AnswerRequest
) -> GivenAnswerBody | RefusedAnswerBody:
    try:
        return answer.keep(review(), said, by=who_asks(request), is_alone=False)
    except ERRORS as error:
        reason = detail_of(error, in_full=call_of(request.scope).in_full)
        return RefusedAnswerBody(place=place, type=problem_type(error), reason=reason)


def _review(state: State, gallery: str) -> SearchReview:
    return SearchReview(state.galleries.matcher(gallery))


def _said_in(state: State, gallery: str, request: Request) -> SearchReview:
    """Review that a key says something in, which counts for that key alone where it may only search."""
    grant = call_of(request.scope).grant
    is_hint = grant is not None and not grant.is_trusted
    return SearchReview(state.galleries.matcher(gallery), is_hint=is_hint)
