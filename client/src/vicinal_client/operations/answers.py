"""Calls about kept searches: what persons say that they show, and what is known by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from vicinal_client.models import (
    DeletedSearches,
    GivenAnswer,
    GivenAnswers,
    KeptSearch,
    KeptSearchPage,
    KnownAnswers,
    LabelList,
    RemovedItem,
    SearchAdditions,
    SearchQuestions,
    TakenBack,
    WrongMatch,
)
from vicinal_client.operations.calls import Calls, admin_path, operation
from vicinal_client.requests import given, path_of
from vicinal_client.retries import Steps

__all__ = ["AnswerCalls"]


class AnswerCalls(Calls):
    """Answers to the searches that a service keeps."""

    @operation
    def answer_search(
        self,
        gallery: str,
        search_id: str,
        *,
        item_id: str | None = None,
        label: str | None = None,
        absent: bool | None = None,
        unsure: bool | None = None,
        wrong: str | None = None,
    ) -> Steps[GivenAnswer]:
        """Say what a kept search shows; what the same key said of it before is replaced.

        Args:
            gallery: Name of the gallery.
            search_id: That of the search, as its answer says.
            item_id: This item is it.
            label: The gallery has it: an item with this label is it.
            absent: The gallery lacks it.
            unsure: It cannot be told.
            wrong: This item is not it, whatever else may be.
        """
        said = given(item_id=item_id, label=label, absent=absent, unsure=unsure, wrong=wrong)
        path, body = path_of("galleries", gallery, "answers"), {"search_id": search_id, **said}
        # Said twice it stands once.
        return (yield from self._ask("POST", path, GivenAnswer, json=body, repeatable=True))

    @operation
    def answer_searches(self, gallery: str, answers: Sequence[Mapping[str, Any]]) -> Steps[GivenAnswers]:
        """Say what several kept searches show, each by itself: one that is refused stops no other.

        Args:
            gallery: Name of the gallery.
            answers: At most 200, each of the members that `answer_search` takes, with `search_id`.
        """
        path, body = path_of("galleries", gallery, "answer-batches"), {"answers": [*map(dict, answers)]}
        # Said twice they stand once.
        return (yield from self._ask("POST", path, GivenAnswers, json=body, repeatable=True))

    @operation
    def take_back_search_answer(self, gallery: str, number: int) -> Steps[TakenBack]:
        """Take an answer back: one's own, or with the scope `admin` anybody's."""
        return (yield from self._ask("DELETE", path_of("galleries", gallery, "answers", number), TakenBack))

    @operation
    def get_search_answers(self, gallery: str) -> Steps[KnownAnswers]:
        """Sum of what the answers say so far."""
        return (yield from self._ask("GET", admin_path(gallery, "answers"), KnownAnswers))

    @operation
    def next_searches(self, gallery: str, n: int | None = None) -> Steps[SearchQuestions]:
        """Kept searches that are worth asking about next, at most `n`; that they were drawn is noted."""
        path = admin_path(gallery, "answers", "next")
        return (yield from self._ask("GET", path, SearchQuestions, params=given(n=n)))

    @operation
    def list_searches(
        self, gallery: str, *, shown: str | None = None, after: str | None = None, size: int | None = None
    ) -> Steps[KeptSearchPage]:
        """Kept searches of one page, newest first; `after` is `next` of the page before, `shown` one of
        `no_match`, `unsure` and `wrong`.
        """
        params = given(shown=shown, after=after, size=size)
        return (yield from self._ask("GET", admin_path(gallery, "searches"), KeptSearchPage, params=params))

    @operation
    def get_search(self, gallery: str, search: str) -> Steps[KeptSearch]:
        """Read a kept search, and what was said of it."""
        return (yield from self._ask("GET", admin_path(gallery, "searches", search), KeptSearch))

    @operation
    def delete_searches(
        self, gallery: str, ids: Sequence[str] | None = None, *, before: datetime | None = None
    ) -> Steps[DeletedSearches]:
        """Delete kept searches with their pictures and answers: all, some, or those before a moment.

        Args:
            gallery: Name of the gallery.
            ids: Only these.
            before: Only those that came before; with a time zone.
        """
        # An empty list is none of them, and not all.
        joined = None if ids is None else ",".join(ids)
        chosen = given(ids=joined, before=before and before.isoformat())
        return (
            yield from self._ask("DELETE", admin_path(gallery, "searches"), DeletedSearches, params=chosen)
        )

    @operation
    def add_searches(
        self, gallery: str, search_ids: Sequence[str] | None = None, *, a_label: int | None = None
    ) -> Steps[SearchAdditions]:
        """Make kept searches items of which persons agree what they show.

        Args:
            gallery: Name of the gallery.
            search_ids: These alone; where None the most useful ones of each label, of which it has at most
                `a_label`.
            a_label: Most items of searches that a label has.
        """
        chosen = None if search_ids is None else list(search_ids)
        path, body = admin_path(gallery, "answers", "items"), given(search_ids=chosen, a_label=a_label)
        # What is an item already is not added again.
        return (yield from self._ask("POST", path, SearchAdditions, json=body, repeatable=True))

    @operation
    def remove_added_search(self, gallery: str, search: str) -> Steps[RemovedItem]:
        """Remove the item that a search became."""
        return (yield from self._ask("DELETE", admin_path(gallery, "searches", search, "item"), RemovedItem))

    @operation
    def explain_wrong_match(self, gallery: str, search: str, item_id: str) -> Steps[WrongMatch]:
        """Say what a match of a kept search rests on."""
        path = admin_path(gallery, "searches", search, "why")
        return (yield from self._ask("GET", path, WrongMatch, params={"id": item_id}))

    @operation
    def list_labels(
        self, gallery: str, *, like: str | None = None, size: int | None = None
    ) -> Steps[LabelList]:
        """Labels that items have; those that hold a text or are spelled like it."""
        params = given(like=like, size=size)
        return (
            yield from self._ask("GET", path_of("galleries", gallery, "labels"), LabelList, params=params)
        )
