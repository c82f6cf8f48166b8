"""Answer: what a person says that a kept search shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, StrictBool, model_validator

from vicinal.service.request_fields import RequestFields

if TYPE_CHECKING:
    from vicinal.service.answering.kept import AnswerKind
    from vicinal.service.answering.review import GivenAnswerBody, SearchReview
    from vicinal.service.operations.place import Place

NOBODY = "nobody named"
# Of an id or a label, as `indexer.item_rules` has it.
_LONGEST = 1024


class AnswerRequest(RequestFields):
    """Answer to a search: exactly one of the fields beside its id."""

    search_id: str = Field(max_length=64, description="`search_id` of the answer to the search.")
    item_id: str | None = Field(None, max_length=_LONGEST, description="This item is it.")
    label: str | None = Field(
        None, max_length=_LONGEST, description="The gallery has it: an item with this label is it."
    )
    absent: StrictBool = Field(False, description="The gallery lacks it.")
    unsure: StrictBool = Field(False, description="It cannot be told.")
    wrong: str | None = Field(
        None, max_length=_LONGEST, description="This item is not it, whatever else may be."
    )

    @property
    def kinds(self) -> list[AnswerKind]:
        """Kinds of answer that were given."""
        given: dict[AnswerKind, bool] = {
            "item": self.item_id is not None,
            "label": self.label is not None,
            "absent": self.absent,
            "unsure": self.unsure,
            "wrong": self.wrong is not None,
        }
        return [kind for kind, is_given in given.items() if is_given]

    @model_validator(mode="after")
    def _exactly_one(self) -> AnswerRequest:
        if len(self.kinds) != 1:
            raise ValueError("say exactly one of item_id, label, absent, unsure and wrong")
        return self


def run(place: Place, request: AnswerRequest, *, by: str = NOBODY) -> GivenAnswerBody:
    """Keep what a person, `by`, says of a search."""
    from vicinal.service.answering.review import SearchReview

    return keep(SearchReview(place.matcher), request, by=by)


def keep(review: SearchReview, request: AnswerRequest, *, by: str, is_alone: bool = True) -> GivenAnswerBody:
    """Keep what a person says in a review that is under way; see `SearchReview.answer`."""
    (kind,) = request.kinds
    item_id = request.wrong if kind == "wrong" else request.item_id
    return review.answer(
        request.search_id, kind, by=by, item_id=item_id, label=request.label, is_alone=is_alone
    )


def user_name() -> str:
    """Name of who uses this machine's files, for what is said without a key."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A user of a container may have no name.
        return NOBODY
