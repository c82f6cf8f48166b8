"""Kept searches of a gallery, and the answers to them: rows of its state.

A kept search has a random key. The sample are the searches with the lowest keys, as many as are wanted: at
any time a random sample of all that came, whoever kept them (bottom-k sampling; Cohen and Kaplan, 2007).
Beside it lie the newest ones for a while, so that what was just shown can be answered, and all that were
answered.

An answer of who is trusted counts for everybody. That of a key that may only search is a hint: it has a
number below zero and counts for that key alone; of what one key calls different the newest thousand stay.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, tuple_

from vicinal.indexer.errors import GalleryError, GalleryNotFoundError
from vicinal.indexer.state import DamagedRowError, Rows, schema, state_of
from vicinal.service.answering.kept import (
    AnswerKind,
    AskedSearch,
    DifferentPair,
    KeptSearch,
    SearchAnswer,
    fields_of,
    of_row,
    search_of,
    stored,
)
from vicinal.service.answering.visit_finder import ONE_VISIT, VisitFinder
from vicinal.service.errors import AnswerNotFoundError, SearchNotFoundError

logger = logging.getLogger(__name__)
# Document that says how many are kept, until when all were deleted, and the salt of senders.
_NOTE = "kept searches"
# Searches that were just answered stay for as long, at most so many of them.
_RECENT = timedelta(minutes=15)
_MOST_RECENT = 1000
# Items that one key which may only search calls different: every search compares with all of them.
_MOST_HINTED = 1000
_MOST_OF_VISIT = 10


class SearchStore:
    """Kept searches of one gallery, and what persons said of them."""

    def __init__(self, gallery: Path) -> None:
        self.gallery = gallery
        self.state = state_of(gallery)

    @property
    def exists(self) -> bool:
        """Tell whether a search was ever kept."""
        with self.state.reading() as rows:
            return rows.has(schema.documents, schema.documents.c.kind == _NOTE)

    def salt(self) -> str:
        """Salt of the hashes of who sent a search, made when it is first asked for."""
        with self.state.reading() as rows:
            found = _noted(rows).get("salt")
        if found is None:
            self._require_gallery()
            with self.state.changing() as rows:
                found = _noted(rows).get("salt") or secrets.token_hex(8)
                _note(rows, salt=found)
        return str(found)

    def keep(self, kept: Iterable[tuple[KeptSearch, bytes | None]], *, most: int, days: float) -> None:
        """Keep searches with their pictures; let go what is older than some days, or beyond the sample."""
        self._require_gallery()
        c = schema.searches.c
        with self.state.changing() as rows:
            since = _noted(rows).get("deleted_before", 0.0)
            new = {search.id: (search, picture) for search, picture in kept}
            visits = VisitFinder(rows, [search for search, _ in new.values() if not search.visit])
            for search, picture in new.values():
                if search.at.timestamp() < since or rows.has(schema.searches, c.id == search.id):
                    continue
                own = {name: getattr(search, name) for name in ("id", "key", "sender", "signature")}
                own |= {"at": search.at.timestamp(), "visit": visits.of(search)}
                picture_row = {"search": search.id, "content": picture}
                rows.add(
                    schema.searches,
                    {**own, "embedding": stored(search.embedding), "fields": fields_of(search)},
                )
                rows.add(schema.pictures, *([picture_row] if picture is not None else []))
            _let_go(rows, datetime.now(UTC), most, days)

    def let_go(self, *, most: int | None, days: float) -> None:
        """Remove what is too old, too many of one visit, or beyond the sample; None leaves that as it is."""
        if not self.exists:
            return
        now, c = datetime.now(UTC), schema.searches.c
        with self.state.changing() as rows:
            _let_go(rows, now, most, days)
            # What asks for the same day and night would fill the sample.
            place = func.row_number().over(partition_by=c.visit, order_by=c.key).label("place")
            placed = rows.of(select(c.id, place), schema.searches).subquery()
            rows.remove(
                schema.searches,
                c.at < (now - _RECENT).timestamp(),
                c.drawn_at.is_(None),
                c.id.not_in(_answered(rows)),
                c.id.in_(select(placed.c.id).where(placed.c.place > _MOST_OF_VISIT)),
            )
            _follow(rows)

    def get(self, search_id: str) -> KeptSearch:
        """Find a search."""
        with self.state.reading() as rows:
            found = _searches(rows, schema.searches.c.id == search_id)
        if not found:
            raise SearchNotFoundError(self.gallery.name, search_id)
        return found[0]

    def picture(self, search_id: str) -> bytes | None:
        """JPEG of what was searched for, small; None for a ready embedding."""
        with self.state.reading() as rows:
            found = rows.first(schema.pictures, schema.pictures.c.search == search_id)
            if not rows.has(schema.searches, schema.searches.c.id == search_id):
                raise SearchNotFoundError(self.gallery.name, search_id)
        return None if found is None else bytes(found.content)

    def searches(self, *, most: int | None = None) -> list[KeptSearch]:
        """Kept searches, oldest first; with `most` a random sample of so many, and all drawn ones."""
        c = schema.searches.c
        with self.state.reading() as rows:
            sample = rows.of(select(c.id), schema.searches).order_by(c.key).limit(most)
            chosen = [] if most is None else [or_(c.drawn_at.is_not(None), c.id.in_(sample))]
            return _searches(rows, *chosen, order_by=(c.at, c.id))

    def page(self, before: tuple[float, str] | None, size: int) -> list[KeptSearch]:
        """Newest searches, or those before the moment and id of one."""
        c = schema.searches.c
        where = [] if before is None else [tuple_(c.at, c.id) < tuple_(*before)]
        with self.state.reading() as rows:
            return _searches(rows, *where, order_by=(c.at.desc(), c.id.desc()), limit=size)

    def answers(
        self, search_id: str | None = None, *, replaced: bool = False, hints: bool = False
    ) -> list[SearchAnswer]:
        """Answers that hold, in the order in which they were given; those of one search, or of all. With
        `replaced` also those in whose place the same person gave another one, with `hints` those too.
        """
        c = schema.answers.c
        where = [] if search_id is None else [c.search == search_id]
        with self.state.reading() as rows:
            order = c.at, func.abs(c.number)
            found = rows.all(schema.answers, *where, order_by=order, on_damage=_tell)
        later = {(one.search, one.by, one.at) for one in found} if replaced else set()
        return [
            of_row(SearchAnswer, one)
            for one in found
            if (hints or one.number > 0)
            and (one.taken_back_at is None or (one.search, one.by, one.taken_back_at) in later)
        ]

    def answer(
        self,
        search_id: str,
        kind: AnswerKind,
        *,
        by: str,
        item_id: str | None = None,
        label: str | None = None,
        different: Mapping[str, bytes | None] | None = None,
        is_hint: bool = False,
    ) -> SearchAnswer:
        """Keep what a person said, in place of what was said before; a wrong match stands alone. `different`
        are the items that it calls different from the picture, each with the SHA-256 of its file.
        """
        c, pair = schema.answers.c, schema.different.c
        # Nobody says both of one item.
        same = and_(c.kind.in_(("item", "wrong")), c.item_id == item_id)
        with self.state.changing() as rows:
            search = rows.first(schema.searches, schema.searches.c.id == search_id)
            if search is None:
                raise SearchNotFoundError(self.gallery.name, search_id)
            now = datetime.now(UTC)
            replaced = same if kind == "wrong" else or_(c.kind != "wrong", same)
            _take_back(rows, now, c.search == search_id, c.by == by, replaced)
            if kind == "item":
                # What counts for others no hint takes back.
                own = [pair.by == by] if is_hint else []
                _unpair(rows, pair.search == search_id, pair.item_id == item_id, *own)
            number = -rows.next_number("hint") if is_hint else rows.next_number("answer")
            given = SearchAnswer(number, search_id, kind, item_id, label, by, now)
            rows.add(schema.answers, {**vars(given), "at": now.timestamp()})
            said = {"answer": number, "search": search_id, "by": by, "at": now.timestamp()}
            said |= {"bundle": json.loads(search.fields)["bundle"], "embedding": search.embedding}
            pairs = [{**said, "item_id": one, "content": of} for one, of in (different or {}).items()]
            if pairs:
                rows.add(schema.different, *pairs)
                _stamp_different(rows)
            if is_hint:
                _unpair_oldest(rows, by)
        return given

    def take_back(self, which: int | str) -> None:
        """Take an answer back, or all of a person, and what they called different, also of searches that have
        gone by their age.
        """
        c, pair, is_one = schema.answers.c, schema.different.c, isinstance(which, int)
        n = 0
        if self.exists:
            with self.state.changing() as rows:
                n = _take_back(rows, datetime.now(UTC), (c.number if is_one else c.by) == which)
                n += _unpair(rows, (pair.answer if is_one else pair.by) == which)
        if not n:
            raise AnswerNotFoundError(which if is_one else f"of '{which}'")

    def different(self) -> list[DifferentPair]:
        """Pictures and items that persons called different, in the order in which they did."""
        with self.state.reading() as rows:
            return different_pairs(rows)

    def draw(self, search_ids: Collection[str], *, asked: Collection[str] = (), by: str = "") -> None:
        """Note searches as drawn, and whom some were put to; what was said before counts from now on."""
        if not search_ids and not asked:
            return
        now, c = datetime.now(UTC).timestamp(), schema.searches.c
        with self.state.changing() as rows:
            rows.change(schema.searches, c.id.in_(search_ids), c.drawn_at.is_(None), drawn_at=now)
            numbered = [(rows.next_number("asked"), one) for one in asked]
            new = [{"number": number, "search": one, "by": by, "at": now} for number, one in numbered]
            rows.add(schema.asked, *new)

    def asked(self) -> list[AskedSearch]:
        """Searches that persons were asked about, in the order in which they were."""
        with self.state.reading() as rows:
            found = rows.all(schema.asked, order_by=(schema.asked.c.number,), on_damage=_tell)
        return [of_row(AskedSearch, one) for one in found]

    def mark_added(self, search_id: str, item_id: str | None) -> None:
        """Note the item that a search became; None where that was taken back."""
        with self.state.changing() as rows:
            rows.change(schema.searches, schema.searches.c.id == search_id, item_id=item_id)

    def delete(self, search_ids: Collection[str] | None = None, *, before: datetime | None = None) -> int:
        """Remove searches with their answers: some, those before a moment, or all; their number."""
        if not self.exists:
            return 0
        c, pair, now = schema.searches.c, schema.different.c, datetime.now(UTC)
        with self.state.changing() as rows:
            chosen: list[ColumnElement[bool]] = []
            pairs: list[ColumnElement[bool]] = []
            if search_ids is not None:
                chosen, pairs = [c.id.in_(search_ids)], [pair.search.in_(search_ids)]
            elif before is not None:
                chosen = [c.at < before.timestamp()]
                # What was called different since goes with its search, too.
                ids = rows.of(select(c.id).where(*chosen), schema.searches)
                pairs = [or_(pair.at < before.timestamp(), pair.search.in_(ids))]
            if search_ids is None:
                # What came before is deleted too where another process has not kept it yet.
                until = min(before or now, now).timestamp()
                _note(rows, deleted_before=max(until, _noted(rows).get("deleted_before", 0.0)))
            _unpair(rows, *pairs)
            n = rows.remove(schema.searches, *chosen)
            _follow(rows)
        self.state.scrub()
        return n

    @property
    def n_kept(self) -> int:
        """Number of kept searches."""
        with self.state.reading() as rows:
            return rows.count(schema.searches)

    @property
    def readable(self) -> tuple[int | None, int]:
        """Number of kept searches and the bytes of all that is kept of them; None and 0 where they cannot be
        read.
        """
        c, picture = schema.searches.c, schema.pictures.c.content
        own = func.length(c.embedding) + func.coalesce(func.length(c.signature), 0) + func.length(c.fields)
        sums = (schema.searches, own), (schema.pictures, func.length(picture))
        try:
            with self.state.reading() as rows:
                found = [rows.connection.scalar(rows.of(select(func.sum(n)), of)) or 0 for of, n in sums]
                return rows.count(schema.searches), int(sum(found))
        except GalleryError:
            return None, 0

    def _require_gallery(self) -> None:
        # One that was deleted meanwhile must not come back by its searches.
        if not self.gallery.is_dir():
            raise GalleryNotFoundError(f"gallery '{self.gallery.name}' has gone, and its searches with it")


def different_pairs(rows: Rows) -> list[DifferentPair]:
    """Pictures and items that persons called different, in the order in which they did."""
    order = schema.different.c.answer, schema.different.c.item_id
    return [of_row(DifferentPair, one) for one in rows.all(schema.different, order_by=order, on_damage=_tell)]


def stamp_of_different(rows: Rows) -> list[int]:
    """Value that is another one after any change to what was called different."""
    return rows.values(schema.numbers.c.value, schema.numbers.c.name == schema.different.name)


def _stamp_different(rows: Rows) -> None:
    # By chance: one that was restored from a backup goes on otherwise from the same number.
    rows.put(schema.numbers, {"name": schema.different.name, "value": secrets.randbits(62)})


def _unpair(rows: Rows, *where: ColumnElement[bool]) -> int:
    n = rows.remove(schema.different, *where)
    if n:
        _stamp_different(rows)
    return n


def _unpair_oldest(rows: Rows, by: str) -> None:
    """Leave the newest of what a key that may only search calls different."""
    c = schema.different.c
    own = rows.of(select(c.answer, c.item_id).where(c.answer < 0, c.by == by), schema.different)
    for one in rows.connection.execute(own.order_by(c.answer, c.item_id).offset(_MOST_HINTED)).all():
        _unpair(rows, c.answer == one.answer, c.item_id == one.item_id)


def _take_back(rows: Rows, now: datetime, *where: ColumnElement[bool]) -> int:
    """Take answers back with what they called different; how many."""
    c = schema.answers.c
    held = [*where, c.taken_back_at.is_(None)]
    told = rows.values(c.number, *held)
    rows.change(schema.answers, *held, taken_back_at=now.timestamp())
    if told:
        _unpair(rows, schema.different.c.answer.in_(told))
    return len(told)


def _tell(error: DamagedRowError) -> None:
    logger.error("%s: it is left out", error)


def _noted(rows: Rows) -> dict[str, Any]:
    # A damaged one is written anew by who keeps the next search.
    found = rows.all(schema.documents, schema.documents.c.kind == _NOTE, on_damage=_tell)
    return dict(json.loads(found[0].content)) if found else {}


def _note(rows: Rows, **changes: Any) -> None:
    content = json.dumps({**_noted(rows), **changes})
    rows.put(schema.documents, {"kind": _NOTE, "id": "", "at": 0.0, "content": content})


def _searches(rows: Rows, *where: ColumnElement[bool], **options: Any) -> list[KeptSearch]:
    key = _key_of_place(rows, max(1, _noted(rows).get("most", 1)))
    found = rows.all(schema.searches, *where, on_damage=_tell, **options)
    return [search_of(one, 1.0 if key is None else key) for one in found]


def _key_of_place(rows: Rows, place: int) -> float | None:
    """Key of the search in a place of all, from 1; None where there are fewer."""
    c = schema.searches.c
    asked = rows.of(select(c.key), schema.searches).order_by(c.key).limit(1).offset(place - 1)
    return rows.connection.scalar(asked)


def _answered(rows: Rows) -> Select[Any]:
    """Ids of searches that who is trusted has answered."""
    c = schema.answers.c
    return rows.of(select(c.search).where(c.number > 0), schema.answers)


def _let_go(rows: Rows, now: datetime, most: int | None, days: float) -> None:
    """Remove searches that are too old, with their answers, and unanswered ones beyond the sample."""
    c = schema.searches.c
    rows.remove(schema.searches, c.at < (now - timedelta(days=days)).timestamp())
    over = (now - ONE_VISIT).timestamp()
    rows.change(schema.searches, c.at < over, c.sender != "", sender="")
    if most is not None:
        if _noted(rows).get("most") != most:
            _note(rows, most=most)
        last = _key_of_place(rows, most)
        newest = rows.of(select(c.id), schema.searches).order_by(c.at.desc()).limit(_MOST_RECENT)
        if last is not None:
            rows.remove(
                schema.searches,
                c.key > last,
                c.id.not_in(_answered(rows)),
                or_(c.at < (now - _RECENT).timestamp(), c.id.not_in(newest)),
            )
    _follow(rows)


def _follow(rows: Rows) -> None:
    """Remove what belongs to searches that have gone."""
    kept = rows.of(select(schema.searches.c.id), schema.searches)
    for table in (schema.pictures, schema.answers, schema.asked):
        rows.remove(table, table.c.search.not_in(kept))
