"""Verdicts of persons on copies: photos that are no copies of each other, whatever their pictures are like.

They are known by their bytes, and hold for good: in the next look, and at once in the records that there are.
Other than what is called different of a search, they hide no match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of
from vicinal.indexer.storage.files import file_lock, make_folder, read_sealed, write_sealed
from vicinal.indexer.views.view import GalleryView
from vicinal.service.duplicates.record import DuplicateGroup, DuplicateItem
from vicinal.service.errors import RequestError, VerdictNotFoundError, VerdictsDamagedError
from vicinal.service.records import remedy_of

VERDICTS = "verdicts.json"
_PATIENCE_SECONDS = 10.0


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


class _Kept(BaseModel, frozen=True, extra="forbid"):
    next_number: int = 1
    verdicts: tuple[CopyVerdict, ...] = ()


class CopyVerdicts:
    """Verdicts of one gallery: `<gallery>/duplicates/verdicts.json`, replaced in one step."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._path = gallery.path / "duplicates" / VERDICTS

    def all(self) -> tuple[CopyVerdict, ...]:
        """Every verdict, in the order in which they were given."""
        return self._read().verdicts

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
        with self._changing() as kept:
            given = CopyVerdict(
                number=kept.next_number, first=first, others=asked[1:], contents=contents, by=by
            )
            self._write(_Kept(next_number=kept.next_number + 1, verdicts=(*kept.verdicts, given)))
        return given

    def take_back(self, number: int) -> None:
        """Forget a verdict."""
        with self._changing() as kept:
            left = tuple(one for one in kept.verdicts if one.number != number)
            if len(left) == len(kept.verdicts):
                raise VerdictNotFoundError(self._gallery.name, str(number))
            self._write(_Kept(next_number=kept.next_number, verdicts=left))

    def left(self, groups: Sequence[DuplicateGroup], view: GalleryView) -> list[DuplicateGroup]:
        """Groups of a record without what was called no copy, and without photos that have gone since.

        A group whose kept photo has gone goes with it: whether the others are copies of each other was not
        looked at.
        """
        ids = [item.id for group in groups for item in (group.kept, *group.copies)]
        there = {
            one for one, position in zip(ids, view.positions(ids).tolist(), strict=True) if position >= 0
        }
        verdicts = self.all()
        pairs = {frozenset((one.first, other)) for one in verdicts for other in one.others} | self.contents()
        found = []
        for group in groups:
            copies = tuple(
                one for one in group.copies if one.id in there and not _are_told_apart(group.kept, one, pairs)
            )
            if copies and group.kept.id in there:
                found.append(group.model_copy(update={"copies": copies}))
        return found

    def _read(self) -> _Kept:
        try:
            return _Kept.model_validate_json(read_sealed(self._path))
        except FileNotFoundError:
            return _Kept()
        except (OSError, ValueError) as error:
            remedy = remedy_of(self._gallery.path, self._path)
            raise VerdictsDamagedError(f"'{self._path}' is damaged: ", remedy) from error

    def _write(self, kept: _Kept) -> None:
        write_sealed(self._path, kept.model_dump_json())

    @contextmanager
    def _changing(self) -> Iterator[_Kept]:
        make_folder(self._path.parent)
        busy = f"another verdict on copies in gallery '{self._gallery.name}' is being kept"
        with file_lock(self._path.with_suffix(".lock"), busy, patience=_PATIENCE_SECONDS):
            yield self._read()


def _are_told_apart(kept: DuplicateItem, copy: DuplicateItem, pairs: Collection[frozenset[str]]) -> bool:
    """Tell whether two are called no copies, by their bytes where the record has them."""
    if kept.content and copy.content:
        return frozenset((kept.content, copy.content)) in pairs
    return frozenset((kept.id, copy.id)) in pairs
