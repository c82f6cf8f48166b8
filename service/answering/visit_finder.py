"""Visits of kept searches: which of them were taken together, found when they are kept."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Select, and_, select

from vicinal.indexer.hygiene import CLOSE_SIMILARITY, SAME_EMBEDDING, are_same_pictures
from vicinal.indexer.state import Rows, schema
from vicinal.service.answering.kept import KeptCandidate, KeptSearch, stored

# Searches of one sender for the same thing are of one visit while no more than so long lies between two; then
# nothing tells who asked. Behind one address may be many persons, so that no visit lasts longer than an hour.
ONE_VISIT = timedelta(minutes=10)
_LONGEST_VISIT = timedelta(hours=1)
# Cosine of photos of a thing that one sender took in a row.
_IN_A_ROW = 0.8
_COMPARED_TOGETHER = 2048


class _Query(NamedTuple):
    visit: str
    embedding: bytes
    signature: bytes | None


class VisitFinder:
    """Finder of the visits of `new` searches, one after the other; what is kept is read once for all."""

    def __init__(self, rows: Rows, new: Sequence[KeptSearch]) -> None:
        self._rows = rows
        self._alike: dict[str, str] = {}
        self._earlier: list[_Query] = []
        c = schema.searches.c
        kept = rows.of(select(c.visit, c.embedding, c.signature), schema.searches)
        kept = kept.order_by(c.id).execution_options(yield_per=_COMPARED_TOGETHER)
        for part in map(_Queries, rows.connection.execute(kept).partitions()):
            for one in new:
                if one.id not in self._alike and (visit := part.visit(one)) is not None:
                    self._alike[one.id] = visit

    def of(self, search: KeptSearch) -> str:
        """Visit of almost the same query, or of what this sender just searched for; else the own id."""
        visit = search.visit or self._alike.get(search.id) or _Queries(self._earlier).visit(search)
        visit = visit or self._of_sender(search) or search.id
        self._earlier.append(_Query(visit, stored(search.embedding), search.signature))
        return visit

    def _of_sender(self, search: KeptSearch) -> str | None:
        c, first = schema.searches.c, schema.searches.alias()
        asked: Select[Any] = (
            select(c.visit, c.embedding, c.fields)
            .join(first, and_(first.c.gallery_key == c.gallery_key, first.c.id == c.visit))
            .where(
                c.sender == search.sender,
                c.sender != "",
                # What another process kept may have come later.
                c.at.between((search.at - ONE_VISIT).timestamp(), (search.at + ONE_VISIT).timestamp()),
                first.c.at >= (search.at - _LONGEST_VISIT).timestamp(),
            )
            .order_by(c.at.desc())
        )
        own = np.asarray(search.embedding, "<f4")
        for row in self._rows.connection.execute(self._rows.of(asked, schema.searches)):
            other = np.frombuffer(row.embedding, "<f4")
            is_alike = len(other) == len(own) and float(other @ own) >= _IN_A_ROW
            if is_alike and _is_same_thing(search.candidates, json.loads(row.fields)["candidates"]):
                return str(row.visit)
        return None


class _Queries:
    """Queries that searches are compared with, those of one length, with pictures or without, together."""

    def __init__(self, queries: Iterable[Any]) -> None:
        self._of: dict[tuple[int, bool], list[Any]] = defaultdict(list)
        for one in queries:
            self._of[len(one.embedding), one.signature is None].append(one)
        self._embeddings = {
            form: np.frombuffer(b"".join(one.embedding for one in some), "<f4").reshape(len(some), -1)
            for form, some in self._of.items()
        }

    def visit(self, search: KeptSearch) -> str | None:
        """Visit of almost the same query."""
        own, signature = np.asarray(search.embedding, "<f4"), search.signature
        form = own.nbytes, signature is None
        if form not in self._embeddings:
            return None
        close = SAME_EMBEDDING if signature is None else CLOSE_SIMILARITY
        alike = np.flatnonzero(self._embeddings[form] @ own >= close)
        if signature is not None and len(alike):
            pictures = np.stack([np.frombuffer(self._of[form][one].signature, np.uint8) for one in alike])
            alike = alike[are_same_pictures(pictures, np.frombuffer(signature, np.uint8)[None])]
        return str(self._of[form][alike[0]].visit) if len(alike) else None


def _is_same_thing(own: Sequence[KeptCandidate], others: Sequence[Sequence[Any]]) -> bool:
    if not own or not others:
        return False
    best, other = own[0], KeptCandidate(*others[0])
    return best.id == other.id or (best.label is not None and best.label == other.label)
