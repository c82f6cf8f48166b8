"""Search queue: searches wait for a thread, and not long; those that wait together are answered together."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Gauge

from vicinal.calibration.arrays import FloatArray
from vicinal.models.embedder import Embedder, PreparedQueries
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.access import Metrics
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer
from vicinal.service.search.gallery_search import EmbeddedImages

Outcome = list[Answer] | BaseException

# What a query is expected to cost before any was measured, in seconds.
_FIRST_GUESS = {"images": 0.02, "embeddings": 0.002, "item_ids": 0.002}
# Weight of the last measurement in the expected cost.
_LEARNING_RATE = 0.1
# A wait that is longer than the first for as long as the second is no burst: more arrives than is answered.
_STANDING_WAIT = 0.6
_STANDING_SECONDS = 1.0
# Searches are turned away for as long after the last one that was, so that a queue that was full is emptied.
_OVERLOAD_SECONDS = 1.0
# What may wait meanwhile, in seconds: enough that no thread is ever without work.
_BUSY_SECONDS = 0.01
# Queries that a thread takes together; more would cost each of them no less.
_MOST_TOGETHER = 8


@dataclass
class Search:
    """Call of a client: queries of one `kind` (`images`, `embeddings` or `item_ids`), searched alike."""

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

    @property
    def question(self) -> Hashable:
        """Equal for searches that one call of the matcher can answer, once they are prepared."""
        return id(self.matcher), self.kind, *self.options.items()

    def prepare(self, matcher_of: Callable[[str], Matcher]) -> tuple[Embedder, list[FloatArray]]:
        """Choose the state of the gallery; gives its embedder and (3, S, S) arrays of images to embed."""
        self._matcher = matcher_of(self.gallery)
        embedder = self._matcher.embedder
        if self.kind != "images":
            return embedder, []
        self._prepared = embedder.prepare_queries(self.queries, self._milliseconds)
        return embedder, self._prepared.tensors

    def embedded(self, raw: FloatArray) -> EmbeddedImages | None:
        """Its images after the network; None of other queries."""
        if self._prepared is None:
            return None
        rows = self.matcher.embedder.finish_queries(self._prepared, raw)
        return EmbeddedImages(rows, self._milliseconds)


def _queries(searches: Sequence[tuple[Search, FloatArray]], seconds: float) -> dict[str, Any]:
    """Arguments of `Matcher.search` for the queries of all searches, in order."""
    first = searches[0][0]
    images = [one for search, raw in searches if (one := search.embedded(raw)) is not None]
    if not images:
        queries = chain.from_iterable(search.queries for search, _ in searches)
        return {**first.options, first.kind: list(queries)}
    # They waited for each other: what took one of them its time took it all.
    spent: Counter[str] = Counter()
    for one in images:
        spent.update(one.milliseconds)
    milliseconds = dict(spent) | {"embed": 1e3 * seconds}
    rows = np.concatenate([one.rows for one in images])
    return {**first.options, "embedded": EmbeddedImages(rows, milliseconds)}


@dataclass(eq=False)
class _Waiting:
    search: Search
    cost: float
    future: asyncio.Future[list[Answer]]
    loop: asyncio.AbstractEventLoop
    since: float = field(default_factory=time.monotonic)

    def told(self, outcome: Outcome) -> None:
        """Hand the outcome to who waits; to be called by the event loop."""
        if self.future.done():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class SearchQueue:
    """Answers searches on a few threads; what has to wait too long is turned away at once. Where the queue
    stays long, it is kept short until a second has passed without a refusal (RFC 8289, Controlled Delay).
    """

    def __init__(
        self,
        galleries: OpenGalleries,
        metrics: Metrics,
        *,
        n_threads: int,
        most_seconds: float,
    ) -> None:
        self._galleries = galleries
        self._metrics = metrics
        self._n_threads = n_threads
        self._most_seconds = most_seconds
        self._waiting: deque[_Waiting] = deque()
        # Waiting or being answered, and waiting alone, in expected seconds of one thread.
        self._cost = self._waiting_cost = 0.0
        self._n_under_way = 0
        self._n_idle = 0
        self._costs = dict(_FIRST_GUESS)
        # Of a search of any kind, before it is known of which.
        self._usual_cost = min(_FIRST_GUESS.values())
        self._refused_at = -math.inf
        # When a search last had little to wait.
        self._short_at = time.monotonic()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._gauge: Gauge | None = None

    def check(self, n_present: int = 0) -> None:
        """Turn a search away whose body was not read yet, where it would be turned away afterwards."""
        if self._is_full(max(0, n_present - self._n_under_way)):
            raise self._refusal()

    @property
    def is_busy(self) -> bool:
        """Tell whether a search that comes now has to wait."""
        return self._n_under_way >= self._n_threads

    async def answered(self, search: Search) -> list[Answer]:
        """Answer a search; to be awaited by an event loop."""
        loop = asyncio.get_running_loop()
        cost = len(search.queries) * self._costs[search.kind]
        waiting = _Waiting(search, cost, loop.create_future(), loop)
        with self._changed:
            self.check()
            self._start()
            self._waiting.append(waiting)
            self._waiting_cost += cost
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

    def _is_full(self, n_arriving: int) -> bool:
        now, arriving = time.monotonic(), n_arriving * self._usual_cost
        wait = (self._cost + arriving) / self._n_threads
        if wait <= _STANDING_WAIT:
            self._short_at = now
        if now - self._refused_at < _OVERLOAD_SECONDS:
            has_work = len(self._waiting) + n_arriving >= self._n_threads * self._n_embedded_together()
            return has_work and self._waiting_cost + arriving >= self._n_threads * _BUSY_SECONDS
        # What runs alone is waited for, however long it takes.
        waits = bool(self._waiting) or n_arriving > 0
        return waits and (wait > self._most_seconds or now - self._short_at > _STANDING_SECONDS)

    def _refusal(self) -> TooManyRequestsError:
        self._refused_at = time.monotonic()
        return self._too_many()

    def _too_many(self) -> TooManyRequestsError:
        return TooManyRequestsError(
            f"more searches wait than can be answered within max_wait_seconds = {self._most_seconds:g}",
            seconds=max(1, math.ceil(self._cost / self._n_threads)),
        )

    def _n_embedded_together(self) -> int:
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
            self._metrics.record_batch([begun - one.since for one in batch])
            gone = [one for one in batch if one.search.is_gone]
            late = [one for one in batch if begun - one.since > self._most_seconds and one not in gone]
            try:
                _tell([(one, self._too_many()) for one in gone] + [(one, self._refusal()) for one in late])
                self._answer([one for one in batch if one not in gone and one not in late])
            finally:
                with self._changed:
                    self._cost -= sum(one.cost for one in batch)
                    self._note_under_way(-len(batch))

    def _take(self) -> list[_Waiting]:
        """The next search, with those that are best answered together with it; none at the end."""
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
            kind, n_queries = batch[0].search.kind, len(batch[0].search.queries)
            most = max(_MOST_TOGETHER, self._n_embedded_together())
            while len(batch) < share and self._waiting:
                following = self._waiting[0].search
                n_queries += len(following.queries)
                if following.kind != kind or n_queries > most:
                    break
                batch.append(self._waiting.popleft())
            self._waiting_cost -= sum(one.cost for one in batch)
            return batch

    def _answer(self, batch: list[_Waiting]) -> None:
        begun = time.monotonic()
        # The state of a gallery is looked up once for all of them.
        matcher_of = cache(self._galleries.matcher)
        prepared = [(one, *found) for one in batch if (found := self._prepare(one, matcher_of)) is not None]
        for embedder in {id(embedder): embedder for _, embedder, _ in prepared}.values():
            alike = [(one, tensors) for one, its_embedder, tensors in prepared if its_embedder is embedder]
            self._finish(embedder, alike)
        n_queries = sum(len(one.search.queries) for one in batch)
        if n_queries:
            kind, spent = batch[0].search.kind, time.monotonic() - begun
            self._costs[kind] += _LEARNING_RATE * (spent / n_queries - self._costs[kind])
            self._usual_cost += _LEARNING_RATE * (spent / len(batch) - self._usual_cost)

    @staticmethod
    def _prepare(
        one: _Waiting, matcher_of: Callable[[str], Matcher]
    ) -> tuple[Embedder, list[FloatArray]] | None:
        try:
            return one.search.prepare(matcher_of)
        except BaseException as error:
            _tell([(one, error)])
            return None

    def _finish(self, embedder: Embedder, alike: list[tuple[_Waiting, list[FloatArray]]]) -> None:
        begun = time.perf_counter()
        tensors = [tensor for _, its_tensors in alike for tensor in its_tensors]
        ends = np.cumsum([0, *(len(its_tensors) for _, its_tensors in alike)]).tolist()
        waiting = [one for one, _ in alike]
        try:
            raw = embedder.infer(tensors, alone=self._is_alone()) if tensors else np.empty((0, 0), np.float32)
        except BaseException as error:
            _tell([(one, error) for one in waiting])
            return
        seconds = time.perf_counter() - begun
        raws = [raw[begin:end] for begin, end in pairwise(ends)]
        outcomes = self._outcomes_of([one.search for one in waiting], raws, seconds)
        _tell(list(zip(waiting, outcomes, strict=True)))

    def _outcomes_of(
        self, searches: Sequence[Search], raws: Sequence[FloatArray], seconds: float
    ) -> list[Outcome]:
        """Answer searches that were prepared; one that cannot be answered fails alone."""
        outcomes: dict[int, Outcome] = {}
        alike = defaultdict(list)
        for number, search in enumerate(searches):
            alike[search.question].append(number)
        for numbers in alike.values():
            own = [(searches[number], raws[number]) for number in numbers]
            outcomes |= zip(numbers, self._answered(own, seconds), strict=True)
        return [outcomes[number] for number in range(len(searches))]

    def _answered(self, searches: Sequence[tuple[Search, FloatArray]], seconds: float) -> list[Outcome]:
        matcher = searches[0][0].matcher
        try:
            found = matcher.search(**_queries(searches, seconds))
            # What was found damaged while it was searched decides no answer.
            self._galleries.integrity.require_whole(matcher.gallery.name)
            self._metrics.record(found)
            self._galleries.drift.record(found, matcher)
            answers = iter(self._galleries.drift.noted(found))
        except BaseException as error:
            if len(searches) == 1:
                return [error]
            return [outcome for one in searches for outcome in self._answered([one], seconds)]
        return [list(islice(answers, len(search.queries))) for search, _ in searches]

    def _is_alone(self) -> bool:
        return self._n_threads == 1 or self._n_idle == self._n_threads - 1


def _tell(outcomes: Sequence[tuple[_Waiting, Outcome]]) -> None:
    """Hand outcomes to their event loops, each of which is woken once."""

    def tell_all(own: Sequence[tuple[_Waiting, Outcome]]) -> None:
        for waiting, outcome in own:
            waiting.told(outcome)

    for loop in {waiting.loop for waiting, _ in outcomes}:
        own = [(waiting, outcome) for waiting, outcome in outcomes if waiting.loop is loop]
        # There is none left where the server has stopped.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell_all, own)
