"""Search queue: searches wait for a thread, and not long; those that wait together are embedded together."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Gauge

from vicinal.models.embedder import Embedder, PreparedQueries
from vicinal.models.similarity import FloatArray
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.matcher.answers import Answer
from vicinal.service.matcher.matcher import EmbeddedImages, Matcher

__all__ = ["Search", "SearchQueue"]

# What a query is expected to cost before any was measured, in seconds.
_FIRST_GUESS = {"images": 0.02, "embeddings": 0.002, "item_ids": 0.002}
# Weight of the last measurement in the expected cost.
_LEARNING_RATE = 0.1
# Searches are turned away for as long after the last one that was, so that a queue that was full is emptied.
_OVERLOAD_SECONDS = 1.0


@dataclass
class Search:
    """One call of a client: queries of one kind, with what all of them are searched with.

    Attributes:
        gallery: Name of the gallery.
        kind: `images`, `embeddings` or `item_ids`.
        queries: Encoded images, embeddings of (d,) numbers, or ids.
        options: Further arguments of `Matcher.search`.
        is_gone: Whether nobody waits for the answer any more.
    """

    gallery: str
    kind: str
    queries: Sequence[Any]
    options: dict[str, Any]
    is_gone: bool = False
    _matcher: Matcher | None = field(default=None, init=False)
    _prepared: PreparedQueries | None = field(default=None, init=False)
    _milliseconds: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def matcher(self) -> Matcher:
        """The state that is searched, once it is prepared."""
        if self._matcher is None:
            raise RuntimeError("a search is prepared before it is finished")
        return self._matcher

    def prepare(self, galleries: OpenGalleries) -> tuple[Embedder, list[FloatArray]]:
        """Choose the state of the gallery, and decode images.

        Returns:
            What embeds them, and arrays (3, S, S) that it has to embed; none of other queries.

        Raises:
            ImageError: An image cannot be used.
            GalleryNotFoundError: There is no such gallery.
            GalleryError: It is damaged.
        """
        self._matcher = galleries.matcher(self.gallery)
        embedder = self._matcher.embedder
        if self.kind != "images":
            return embedder, []
        self._prepared = embedder.prepare_queries(self.queries, self._milliseconds)
        return embedder, self._prepared.tensors

    def finish(self, raw: FloatArray, seconds: float) -> list[Answer]:
        """Answer each query.

        Args:
            raw: What the network made of the tensors.
            seconds: Time that it took.

        Raises:
            VicinalError: As `Matcher.search`.
        """
        if self._prepared is None:
            query: dict[str, Any] = {self.kind: self.queries}
            return self.matcher.search(**query, **self.options)
        self._milliseconds["embed"] = 1e3 * seconds
        rows = self.matcher.embedder.finish_queries(self._prepared, raw)
        embedded = EmbeddedImages(rows, self._milliseconds)
        return self.matcher.search(embedded=embedded, **self.options)


@dataclass(eq=False)
class _Waiting:
    search: Search
    cost: float
    future: asyncio.Future[list[Answer]]
    loop: asyncio.AbstractEventLoop
    since: float = field(default_factory=time.monotonic)

    def tell(self, answers: list[Answer] | None, error: BaseException | None = None) -> None:
        """Hand the outcome to the event loop; there is none left where the server has stopped."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._told, answers, error)

    def _told(self, answers: list[Answer] | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answers or [])


class SearchQueue:
    """Answers searches on a few threads; what has to wait too long is turned away at once.

    A search is embedded alone when nothing else waits. What waits together for a thread is embedded together.
    A burst may fill the queue up to `most_seconds`. Where it was full, more arrives than can be answered, and
    waiting helps nobody: until a second has passed without a refusal, only as many wait as keep the threads
    busy.

    Args:
        galleries: Galleries of the process.
        n_threads: Searches that are answered at a time; one a core.
        most_seconds: Longest wait.
        record: Counts the answers of a search, and gives those that are sent.
        note: Takes the seconds that each search waited of those that a thread takes together.
    """

    def __init__(
        self,
        galleries: OpenGalleries,
        *,
        n_threads: int,
        most_seconds: float,
        record: Callable[[list[Answer], Matcher], list[Answer]],
        note: Callable[[Sequence[float]], None],
    ) -> None:
        self._galleries = galleries
        self._record = record
        self._note = note
        self._n_threads = n_threads
        self._most_seconds = most_seconds
        self._waiting: deque[_Waiting] = deque()
        # Waiting or being answered, in expected seconds of one thread.
        self._cost = 0.0
        self._n_under_way = 0
        self._n_idle = 0
        self._costs = dict(_FIRST_GUESS)
        self._refused_at = -math.inf
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._gauge: Gauge | None = None

    def check(self) -> None:
        """Turn a search away whose body was not read yet, where it would be turned away afterwards.

        Raises:
            TooManyRequestsError: Searches wait too long.
        """
        if self._is_full():
            raise self._refusal()

    @property
    def is_busy(self) -> bool:
        """Whether a search that comes now has to wait."""
        return self._n_under_way >= self._n_threads

    async def answered(self, search: Search) -> list[Answer]:
        """Answer a search; to be awaited by an event loop.

        Raises:
            TooManyRequestsError: It would wait too long, or has.
            VicinalError: As `Matcher.search`.
        """
        loop = asyncio.get_running_loop()
        cost = len(search.queries) * self._costs[search.kind]
        waiting = _Waiting(search, cost, loop.create_future(), loop)
        with self._changed:
            self.check()
            self._start()
            self._waiting.append(waiting)
            self._cost += cost
            self._note_under_way(1)
            self._changed.notify()
        try:
            return await waiting.future
        except asyncio.CancelledError:
            search.is_gone = True
            raise

    def stop(self) -> None:
        """Let the threads end after what they are at; a further search starts others."""
        with self._changed:
            self._threads = []
            self._changed.notify_all()

    def register(self, registry: CollectorRegistry) -> None:
        """Show in a registry of metrics how much is under way."""
        self._gauge = Gauge(
            "vicinal_searches_under_way",
            "Searches answered or waiting",
            registry=registry,
            # Over several processes; what one that died had under way is none of it.
            multiprocess_mode="livesum",
        )
        self._note_under_way(0)

    def _note_under_way(self, change: int) -> None:
        self._n_under_way += change
        if self._gauge is not None:
            self._gauge.set(self._n_under_way)

    def _is_full(self) -> bool:
        if time.monotonic() - self._refused_at < _OVERLOAD_SECONDS:
            return len(self._waiting) >= self._n_threads * self._most_together()
        return bool(self._waiting) and self._cost / self._n_threads > self._most_seconds

    def _refusal(self) -> TooManyRequestsError:
        self._refused_at = time.monotonic()
        expected = self._cost / self._n_threads
        return TooManyRequestsError(
            f"{self._n_under_way} searches are under way or wait: more than can be answered within "
            f"max_wait_seconds = {self._most_seconds:g}",
            seconds=max(1, math.ceil(expected)),
        )

    def _most_together(self) -> int:
        own = self._galleries.bundles.own_if_open
        return 1 if own is None else own.embedder.n_together

    def _start(self) -> None:
        if self._threads:
            return
        self._threads = [
            threading.Thread(target=self._work, name=f"search {number}", daemon=True)
            for number in range(self._n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while batch := self._take():
            begun = time.monotonic()
            self._note([begun - one.since for one in batch])
            try:
                self._answer([one for one in batch if not self._is_late(one, begun)])
            finally:
                with self._changed:
                    self._cost -= sum(one.cost for one in batch)
                    self._note_under_way(-len(batch))

    def _take(self) -> list[_Waiting]:
        """The next search, with those of images that are best embedded together with it; none at the end."""
        own = threading.current_thread()
        with self._changed:
            self._n_idle += 1
            while not self._waiting and own in self._threads:
                self._changed.wait()
            # What waits is shared out to all threads that have nothing to do.
            share = math.ceil(len(self._waiting) / self._n_idle)
            self._n_idle -= 1
            if not self._waiting:
                return []
            batch = [self._waiting.popleft()]
            most, n_images = self._most_together(), len(batch[0].search.queries)
            while batch[0].search.kind == "images" and len(batch) < share and self._waiting:
                following = self._waiting[0].search
                n_images += len(following.queries)
                if following.kind != "images" or n_images > most:
                    break
                batch.append(self._waiting.popleft())
            return batch

    def _is_late(self, waiting: _Waiting, now: float) -> bool:
        """Whether an answer would come too late for anybody; it is not worked on then."""
        if not waiting.search.is_gone and now - waiting.since <= self._most_seconds:
            return False
        waiting.tell(None, self._refusal())
        return True

    def _answer(self, batch: list[_Waiting]) -> None:
        begun = time.monotonic()
        prepared = [(one, *found) for one in batch if (found := self._prepare(one)) is not None]
        for embedder in {id(embedder): embedder for _, embedder, _ in prepared}.values():
            alike = [(one, tensors) for one, its_embedder, tensors in prepared if its_embedder is embedder]
            self._finish(embedder, alike)
        n_queries = sum(len(one.search.queries) for one in batch)
        if n_queries:
            kind, spent = batch[0].search.kind, (time.monotonic() - begun) / n_queries
            self._costs[kind] += _LEARNING_RATE * (spent - self._costs[kind])

    def _prepare(self, one: _Waiting) -> tuple[Embedder, list[FloatArray]] | None:
        try:
            return one.search.prepare(self._galleries)
        except BaseException as error:
            one.tell(None, error)
            return None

    def _finish(self, embedder: Embedder, alike: list[tuple[_Waiting, list[FloatArray]]]) -> None:
        begun = time.perf_counter()
        tensors = [tensor for _, its_tensors in alike for tensor in its_tensors]
        ends = np.cumsum([0, *(len(its_tensors) for _, its_tensors in alike)]).tolist()
        try:
            raw = embedder.infer(tensors, alone=self._is_alone()) if tensors else np.empty((0, 0), np.float32)
        except BaseException as error:
            for one, _ in alike:
                one.tell(None, error)
            return
        seconds = time.perf_counter() - begun
        for (one, _), (begin, end) in zip(alike, pairwise(ends), strict=True):
            try:
                answers = one.search.finish(raw[begin:end], seconds)
                one.tell(self._record(answers, one.search.matcher))
            except BaseException as error:
                one.tell(None, error)

    def _is_alone(self) -> bool:
        return self._n_threads == 1 or self._n_idle == self._n_threads - 1
