"""Keeper of searches: what was just answered is kept by a thread of its own, beside the way of a search."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import list_galleries
from vicinal.indexer.jobs.preparation import make_signature, make_thumbnail
from vicinal.models.similarity import as_embeddings
from vicinal.service.answering.kept import KeptCandidate, KeptSearch, new_search_id
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.process import BackgroundWork
from vicinal.service.request_fields import SearchOptions
from vicinal.service.search.answers import Answer
from vicinal.service.search.gallery_search import EmbeddedImages
from vicinal.service.settings import Settings

logger = logging.getLogger(__name__)
Outcome = Literal["kept", "too_many", "failed"]

# Searches that a process keeps: as many a second, more of them where few came before. Each takes a core some
# 20 ms, which searches beside it feel: benchmarks/load/kept_searches.py.
_A_SECOND = 0.1
_MOST_AT_ONCE = 200.0
# What may wait for the thread.
_MOST_WAITING = 200
_MOST_WAITING_BYTES = 64 * 2**20
_N_CANDIDATES = 20
# Longest side of a kept picture in pixels: what a network looks at, and a person.
_PICTURE_SIDE = 512
_SECONDS_BETWEEN_LOOKS = 3600.0
_LONGEST_WAIT = 10.0


@dataclass(frozen=True)
class OfferedQuery:
    """A query that was answered: an encoded image or a ready embedding, and who sent it."""

    sender: str
    image: bytes | None = None


@dataclass(frozen=True)
class _Offered:
    at: datetime
    matcher: Matcher
    asked: SearchOptions
    answer: Answer
    query: OfferedQuery
    embedding: FloatArray | Sequence[float]


class SearchProblems:
    """Reasons why searches of galleries are not kept, each told once in the log."""

    def __init__(self) -> None:
        self._reasons: dict[Path, str] = {}

    @property
    def told(self) -> list[str]:
        """Sentences on those that last; a gallery that was deleted has none."""
        return [
            f"searches of gallery '{gallery.name}' are not kept: {reason}"
            for gallery, reason in sorted(self._reasons.items())
            if gallery.is_dir()
        ]

    def tried(self, gallery: Path, do: Callable[[], object]) -> None:
        """Do something for a gallery, and note why it cannot be done."""
        try:
            do()
        except Exception as error:  # Whatever it is, the next round tries again
            if gallery.is_dir() and self._reasons.get(gallery) != str(error):
                self._reasons[gallery] = str(error)
                logger.warning("searches of gallery '%s' are not kept: %s", gallery.name, error)
        else:
            self._reasons.pop(gallery, None)


class SearchKeeper(BackgroundWork):
    """Keeps searches of one process while it is entered as a context; at its end all that waits is kept.

    `settings` say how many of a gallery, and how long; `count` is told what became of how many.
    """

    name = "kept searches"

    def __init__(self, settings: Settings, count: Callable[[Outcome, int], None]) -> None:
        super().__init__()
        self._settings = settings
        self._count = count
        self._waiting: deque[_Offered] = deque()
        self._n_waiting_bytes = 0
        self._n_free, self._freed_at = _MOST_AT_ONCE, time.monotonic()
        self._is_at_work = False
        # Why searches of a gallery cannot be kept, as it was told last.
        self._problems = SearchProblems()

    def offered(
        self,
        answers: list[Answer],
        matcher: Matcher,
        asked: SearchOptions,
        queries: Sequence[OfferedQuery],
        embeddings: Sequence[FloatArray | Sequence[float]],
    ) -> list[Answer]:
        """The answers of one call, with the ids of those searches that will be kept; nothing waits here."""
        if self._thread is None or not self._settings.keep_searches or asked.filter is not None:
            return answers
        given, at = [], datetime.now(UTC)
        with self._changed:
            now = time.monotonic()
            freed = self._n_free + (now - self._freed_at) * _A_SECOND
            self._n_free, self._freed_at = min(_MOST_AT_ONCE, freed), now
            for answer, query, embedding in zip(answers, queries, embeddings, strict=True):
                n_bytes = self._n_waiting_bytes + len(query.image or b"")
                has_room = len(self._waiting) < _MOST_WAITING and n_bytes <= _MOST_WAITING_BYTES
                if self._n_free < 1.0 or not has_room:
                    break
                self._n_free -= 1.0
                self._n_waiting_bytes = n_bytes
                given.append(replace(answer, search_id=new_search_id()))
                self._waiting.append(_Offered(at, matcher, asked, given[-1], query, embedding))
            if given:
                self._changed.notify_all()
        if len(given) < len(answers):
            self._count("too_many", len(answers) - len(given))
        return given + answers[len(given) :]

    @property
    def problems(self) -> list[str]:
        """Reasons why searches of galleries cannot be kept."""
        return self._problems.told

    def wait(self) -> None:
        """Wait until all that was offered so far is kept."""
        with self._changed:
            self._changed.wait_for(
                lambda: not (self._waiting or self._is_at_work) or self._thread is None, _LONGEST_WAIT
            )

    async def catch_up(self) -> None:
        """Wait in the same way, and hold up nobody else."""
        await asyncio.to_thread(self.wait)

    def _work(self) -> None:
        looks_at = -math.inf
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._is_stopping, max(0.0, looks_at - time.monotonic())
                )
                batch = list(self._waiting)
                self._waiting.clear()
                self._n_waiting_bytes, self._is_at_work = 0, bool(batch)
                is_over = self._is_stopping and not batch
            if is_over:
                return
            by_gallery = defaultdict(list)
            for one in batch:
                by_gallery[one.matcher.gallery.path].append(one)
            for path, own in by_gallery.items():
                self._problems.tried(path, partial(self._keep, SearchStore(path), own))
            with self._changed:
                self._is_at_work = False
                self._changed.notify_all()
            if looks_at <= time.monotonic():
                looks_at = time.monotonic() + _SECONDS_BETWEEN_LOOKS
                self._problems.tried(self._settings.galleries_path, self._let_go)

    def _keep(self, store: SearchStore, offered: Sequence[_Offered]) -> None:
        kept: list[tuple[KeptSearch, bytes | None]] = []
        n_kept, failure = 0, None
        try:
            salt = store.salt()
            for one in offered:
                # What lies under its name now may be another gallery.
                if one.matcher.snapshot.is_replaced:
                    continue
                try:
                    kept.append(_kept(one, salt))
                except Exception as error:  # Whatever it is, it takes no other search with it
                    failure = error
            store.keep(kept, most=self._settings.keep_searches, days=self._settings.keep_searches_days)
            n_kept = len(kept)
        finally:
            self._count("kept", n_kept)
            self._count("failed", len(offered) - n_kept)
        if failure is not None:
            raise failure

    def _let_go(self) -> None:
        """Remove what is too old, also where no search comes and where nothing is kept any more."""
        most, days = self._settings.keep_searches or None, self._settings.keep_searches_days
        for gallery in list_galleries(self._settings.galleries_path):
            let_go = SearchStore(gallery.path).let_go
            self._problems.tried(gallery.path, partial(let_go, most=most, days=days))


def _kept(offered: _Offered, salt: str) -> tuple[KeptSearch, bytes | None]:
    """A search with its picture, as they are kept."""
    matcher, answer, image = offered.matcher, offered.answer, offered.query.image
    rows = np.asarray(offered.embedding, dtype=np.float32)[None]
    if image is None:
        rows = as_embeddings(rows, matcher.snapshot.manifest.dim)
    asked = offered.asked.model_copy(
        update={
            "limit": _N_CANDIDATES,
            "include_candidates": True,
            "explain": False,
            "sort_by": None,
            "mark_copies": False,
        }
    )
    (found,) = matcher.search(embedded=EmbeddedImages(rows, {}), asked=asked)
    # Another pipeline was put in force meanwhile.
    found = found if found.pipeline == answer.pipeline else answer
    signature = picture = None
    if image is not None:
        patient = replace(matcher.embedder.limits, wait_seconds=None)
        with matcher.embedder.decoding(image, limits=patient) as decoded:
            signature = make_signature(decoded).tobytes()
            picture = make_thumbnail(decoded, _PICTURE_SIDE)
    search = KeptSearch(
        embedding=rows[0],
        bundle=answer.bundle,
        version=answer.version,
        revision=answer.revision,
        pipeline=answer.pipeline,
        candidates=tuple(
            KeptCandidate(one.id, one.label, score) for _, one, score in found.entries[:_N_CANDIDATES]
        ),
        verdict=answer.verdict,
        threshold=answer.threshold.value,
        calibration=answer.threshold.calibration,
        id=answer.search_id or new_search_id(),
        at=offered.at,
        sender=hashlib.sha256(f"{salt} {offered.query.sender}".encode()).hexdigest()[:16],
        signature=signature,
    )
    return search, picture
