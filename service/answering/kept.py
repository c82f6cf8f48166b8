"""Kept searches, and what persons said of them: queries with what was found, answers, pairs."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import numpy as np

from vicinal.calibration.arrays import FloatArray

AnswerKind = Literal["item", "label", "absent", "unsure", "wrong"]
Of = TypeVar("Of", "KeptSearch", "SearchAnswer", "DifferentPair", "AskedSearch")


def new_search_id() -> str:
    """An id that nobody guesses: the second, and chance."""
    return f"{int(datetime.now(UTC).timestamp()):08x}{secrets.token_hex(12)}"


@dataclass(frozen=True)
class KeptCandidate:
    """Candidate of a search: an item alone, or the best one of a label or group, with its score."""

    id: str
    label: str | None
    score: float


@dataclass(frozen=True)
class KeptSearch:
    """A query, and what was found for it.

    Attributes:
        sender: Salted hash of who asked, for as long as it tells visits apart; then empty.
        visit: Searches of one visit were taken together, and are asked about once. Where none is given it is
            found when the search is kept: almost the same query, or one that the same sender asked within
            ten minutes and that has the same label or item as its best candidate.
        embedding: (d,) float32, L2-normalized, before refinement.
        signature: 768 bytes, the picture at 16 x 16 pixels; None for a ready embedding.
        candidates: Best ones first, as many as are kept.
        drawn_at: When it was drawn to be asked about; None where it was not.
        item_id: Item that it became; None where it became none.
        in_sample: Whether it belongs to the random sample of all searches.
    """

    embedding: FloatArray
    bundle: str
    version: int
    revision: int
    pipeline: str
    candidates: tuple[KeptCandidate, ...]
    verdict: str | None
    threshold: float | None
    calibration: str | None
    id: str = field(default_factory=new_search_id)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    key: float = field(default_factory=lambda: secrets.randbits(52) / 2.0**52)
    sender: str = ""
    visit: str = ""
    signature: bytes | None = None
    drawn_at: datetime | None = None
    item_id: str | None = None
    in_sample: bool = True

    @property
    def top_score(self) -> float | None:
        """Best score; None where nothing could be compared."""
        return self.candidates[0].score if self.candidates else None


@dataclass(frozen=True)
class SearchAnswer:
    """Answer of a person to a kept search, as `SearchAnswerBody` tells it."""

    number: int
    search: str
    kind: AnswerKind
    item_id: str | None
    label: str | None
    by: str
    at: datetime

    @property
    def is_hint(self) -> bool:
        """Tell whether it counts for nobody but who said it."""
        return self.number < 0


@dataclass(frozen=True)
class DifferentPair:
    """Picture and an item that a person called different; it stays when the search has gone by its age.

    Attributes:
        answer: Number of the answer that says so, by which it can be taken back.
        content: SHA-256 of the item's file; None where that was not known.
        embedding: (d,) float32, L2-normalized, of the picture, by a bundle.
    """

    answer: int
    search: str
    item_id: str
    content: bytes | None
    bundle: str
    embedding: FloatArray
    by: str
    at: datetime

    def counts_for(self, asker: str | None) -> bool:
        """Tell whether it counts where somebody searches; None for nobody in particular."""
        return self.answer > 0 or self.by == asker


@dataclass(frozen=True)
class AskedSearch:
    """Search that a person was asked about."""

    search: str
    by: str
    at: datetime


def standing(answers: Sequence[SearchAnswer]) -> dict[str, list[SearchAnswer]]:
    """Answers by search, one of each person; those about one wrong match are left out."""
    found: dict[str, list[SearchAnswer]] = defaultdict(list)
    for one in answers:
        if one.kind != "wrong":
            found[one.search].append(one)
    return dict(found)


def stored(embedding: FloatArray) -> bytes:
    """An embedding as it is stored."""
    return np.asarray(embedding, dtype="<f4").tobytes()


def fields_of(search: KeptSearch) -> str:
    """Answer to a search, as JSON."""
    names = ("bundle", "version", "revision", "pipeline", "verdict", "threshold", "calibration")
    answered = {name: getattr(search, name) for name in names}
    return json.dumps({**answered, "candidates": [astuple(one) for one in search.candidates]})


def search_of(row: Any, sample_key: float) -> KeptSearch:
    """A search of its row; the sample are those with keys up to one."""
    found = json.loads(row.fields)
    found["candidates"] = tuple(KeptCandidate(*one) for one in found["candidates"])
    drawn_at = None if row.drawn_at is None else _moment(row.drawn_at)
    return of_row(KeptSearch, row, **found, drawn_at=drawn_at, in_sample=row.key <= sample_key)


def of_row(kind: type[Of], row: Any, **given: Any) -> Of:
    """Instance of a class here, whose fields are named as the columns of a row."""
    given["at"] = _moment(row.at)
    if "embedding" in row._fields:
        given["embedding"] = np.frombuffer(row.embedding, dtype="<f4")
    names = [one.name for one in fields(kind) if one.name not in given]
    return kind(**{name: getattr(row, name) for name in names}, **given)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
