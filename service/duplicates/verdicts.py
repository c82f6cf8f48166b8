"""Verdicts of persons on copies: photos that are no copies of each other, whatever their pictures are like.

They are known by their bytes, and hold for good: in the next look, and at once in the records that there are.
Other than what is called different of a search, they hide no match.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from pydantic import BaseModel, Field

from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of
from vicinal.indexer.state import DamagedRowError, state_of
from vicinal.indexer.state.schema import verdicts
from vicinal.indexer.views.view import GalleryView
from vicinal.service.duplicates.record import DuplicateGroup
from vicinal.service.errors import RequestError, VerdictNotFoundError

logger = logging.getLogger(__name__)
# Of verdicts that no session asked for.
_COPIES = verdicts.c.session == ""


class CopyVerdict(BaseModel, frozen=True, extra="forbid"):
    """Photos that a person called no copies.

    Attributes:
        number: By which it can be taken back.
        others: Ids of photos that the first is no copy of, nor they of it.
        contents: SHA-256 of the bytes of all of these, by id.
        by: Name of the key that said it.
    """

    number: int
    first: str
    others: tuple[str, ...]
    contents: dict[str, str]
    by: str
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class CopyVerdicts:
    """Verdicts of one gallery."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._state = state_of(gallery.path)

    def all(self) -> tuple[CopyVerdict, ...]:
        """Every verdict, in the order in which they were given."""
        with self._state.reading() as rows:
            order = verdicts.c.number, verdicts.c.place
            found = rows.all(verdicts, _COPIES, order_by=order, on_damage=_tell)
        return tuple(_verdict([*pairs]) for _, pairs in groupby(found, key=lambda one: one.number))

    def contents(self) -> set[frozenset[str]]:
        """Pairs of files that are no copies of each other, each of two sums."""
        return {
            frozenset((one.contents[one.first], one.contents[other]))
            for one in self.all()
            for other in one.others
        }

    def add(self, view: GalleryView, first: str, others: Sequence[str], *, by: str) -> CopyVerdict:
        """Keep that a photo is no copy of others; RequestError where two have the same bytes."""
        asked = (first, *dict.fromkeys(others))
        held = digests_of(self._gallery, view, asked)
        for one in asked:
            if one not in held:
                raise ItemNotFoundError(self._gallery.name, one)
        contents = {name: content.hex() for name, content in held.items()}
        for one in asked[1:]:
            if contents[one] == contents[first]:
                raise RequestError(f"'{first}' and '{one}' have the same bytes: they are copies")
        with self._state.changing() as rows:
            number = rows.next_number("verdict")
            given = CopyVerdict(number=number, first=first, others=asked[1:], contents=contents, by=by)
            said = {"number": number, "session": "", "said": "different", "by": by, "first": first}
            said |= {"at": given.at.timestamp(), "first_content": contents[first]}
            pairs = [{**said, "other": one, "other_content": contents[one]} for one in given.others]
            rows.add(verdicts, *({**pair, "place": place} for place, pair in enumerate(pairs)))
        return given

    def take_back(self, number: int) -> None:
        """Forget a verdict."""
        with self._state.changing() as rows:
            if not rows.remove(verdicts, _COPIES, verdicts.c.number == number):
                raise VerdictNotFoundError(self._gallery.name, str(number))

    def left(self, groups: Sequence[DuplicateGroup], view: GalleryView) -> list[DuplicateGroup]:
        """Groups of a record without what was called no copy, and without photos that have gone since.

        A group whose kept photo has gone goes with it: whether the others are copies of each other was not
        looked at.
        """
        ids = [item.id for group in groups for item in (group.kept, *group.copies)]
        there = {
            one for one, position in zip(ids, view.positions(ids).tolist(), strict=True) if position >= 0
        }
        pairs = self.contents()
        found = []
        for group in groups:
            copies = tuple(
                one
                for one in group.copies
                if one.id in there and frozenset((group.kept.content, one.content)) not in pairs
            )
            if copies and group.kept.id in there:
                found.append(group.model_copy(update={"copies": copies}))
        return found


def _verdict(pairs: Sequence[Any]) -> CopyVerdict:
    one = pairs[0]
    contents = {one.first: one.first_content, **{pair.other: pair.other_content for pair in pairs}}
    return CopyVerdict(
        number=one.number,
        first=one.first,
        others=tuple(pair.other for pair in pairs),
        contents=contents,
        by=one.by,
        at=datetime.fromtimestamp(one.at, UTC),
    )


def _tell(error: DamagedRowError) -> None:
    logger.error("%s: its photos are called copies again", error)
