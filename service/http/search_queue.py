"""Search queue: searches wait for a thread, and not long; those that wait together are answered together.

In a queue of their own so do other calls that may take long: one by one, as long as their client waits.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
from starlette.requests import Request

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines import ENGINE
from vicinal.indexer.errors import EngineError
from vicinal.models.embedder import PreparedQueries
from vicinal.service.answering.keeper import OfferedQuery, SearchKeeper
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.access import Metrics
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer
from vicinal.service.search.gallery_search import EmbeddedImages

Outcome = list[Any] | BaseException
_CALLS = "calls"

# What a query is expected to cost before any was measured, in seconds.
_FIRST_GUESS = {"images": 0.02, "embeddings": 0.002, "item_ids": 0.002, _CALLS: 0.02}
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


@dataclass(eq=False)
class Search:
    """Call of a client: queries of one `kind` (`images`, `embeddings` or `item_ids`), searched alike; or
    `calls` of functions.
    """

    gallery: str
    kind: str
    queries: Sequence[Any]
    options: dict[str, Any]
    # Name of its key, and address.
    sender: str = ""
    # Name of its key alone.
    asker: str | None = None
    # Id of the kept search that is searched for again; it is not kept a second time.
    kept: str | None = None
    is_gone: bool = False
    # In the queue: what it is expected to cost, since when it waits, and who waits for it.
    cost: float = field(default=0.0, init=False)
    since: float = field(default=0.0, init=False)
    future: asyncio.Future[list[Any]] = field(init=False)
    # Once it is prepared: the state that is searched, and its images.
    matcher: Matcher = field(init=False)
    prepared: PreparedQueries | None = field(default=None, init=False)
    milliseconds: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def question(self) -> Hashable:
        """Equal for searches that one call of the matcher can answer, once they are prepared."""
        return id(self.matcher), self.kind, self.kept, *self.options.items()

    @property
    def tensors(self) -> list[FloatArray]:
        """Its images for the network, (3, S, S) each."""
        return [] if self.prepared is None else self.prepared.tensors

    def prepare(self, matcher_of: Callable[[str], Matcher]) -> None:
        """Choose the state of the gallery, and decode the images."""
        self.matcher = matcher_of(self.gallery)
        if self.kind == "images":
            self.prepared = self.matcher.embedder.prepare_queries(self.queries, self.milliseconds)


def _arguments(searches: Sequence[Search], raws: Sequence[FloatArray], seconds: float) -> dict[str, Any]:
    """Arguments of `Matcher.search` for the queries of all searches, in order; `raws` came of the network."""
    first = searches[0]
    options = {**first.options, "askers": [one.asker for one in searches for _ in one.queries]}
    if first.kind != "images":
        return {**options, first.kind: [query for one in searches for query in one.queries]}
    # They waited for each other: what took one of them its time took it all.
    spent: Counter[str] = Counter()
    rows = []
    for one, raw in zip(searches, raws, strict=True):
        if one.prepared is not None:
            rows.append(first.matcher.embedder.finish_queries(one.prepared, raw))
        spent.update(one.milliseconds)
    milliseconds = dict(spent) | {"embed": 1e3 * seconds}
    return {**options, "embedded": EmbeddedImages(np.concatenate(rows), milliseconds)}


def take(waiting: deque[Search], *, n_idle: int, most: int) -> list[Search]:
    """Take the search that waits longest, and those of its kind that are best answered together with it."""
    # What waits is shared out to all threads that have nothing to do, or are yet to begin.
    share, n_queries = math.ceil(len(waiting) / max(1, n_idle)), len(waiting[0].queries)
    batch = [waiting.popleft()]
    while len(batch) < share and waiting:
        n_queries += len(waiting[0].queries)
        if waiting[0].kind != batch[0].kind or n_queries > most:
            break
        batch.append(waiting.popleft())
    return batch


class SearchQueue:
    """Answers searches on a few threads; what has to wait too long is turned away at once. Where the queue
    stays long, it is kept short until a second has passed without a refusal (RFC 8289, Controlled Delay).
    Galleries whose candidates the engine finds have a queue of their own: where it hangs, others go on.
    """

    def __init__(
        self,
        galleries: OpenGalleries,
        metrics: Metrics,
        keeper: SearchKeeper,
        *,
        n_threads: int,
        most_seconds: float,
        is_beside: bool = False,
    ) -> None:
        self._galleries = galleries
        self._metrics = metrics
        self._keeper = keeper
        # The engine's own, which has none beside it.
        self._is_beside = is_beside
        self._beside: list[SearchQueue] = []
        self._n_threads = n_threads
        self._most_seconds = most_seconds
        self._waiting: deque[Search] = deque()
        # Waiting or being answered, and waiting alone, in expected seconds of one thread.
        self._cost = self._waiting_cost = 0.0
        self._n_under_way = 0
        self._n_at_work = 0
        self._costs = dict(_FIRST_GUESS)
        # Of a search of any kind, before it is known of which.
        self._usual_cost = min(_FIRST_GUESS.values())
        self._refused_at = -math.inf
        # When a search last had little to wait.
        self._short_at = time.monotonic()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def check(self, n_present: int = 0) -> None:
        """Turn a search away whose body was not read yet, where it would be turned away afterwards."""
        n_beside = sum(one._n_under_way for one in self._beside)
        if self._is_full(max(0, n_present - self._n_under_way - n_beside)):
            raise self._refusal()

    @property
    def is_busy(self) -> bool:
        """Tell whether a search that comes now has to wait."""
        return any(one._n_under_way >= one._n_threads for one in (self, *self._beside))

    async def answered(self, search: Search) -> list[Any]:
        """Answer a search; to be awaited by an event loop."""
        if (beside := self._queue_beside(search.gallery)) is not None:
            return await beside.answered(search)
        search.future = asyncio.get_running_loop().create_future()
        search.cost, search.since = len(search.queries) * self._costs[search.kind], time.monotonic()
        with self._changed:
            self.check()
            self._start()
            self._waiting.append(search)
            self._waiting_cost += search.cost
            self._cost += search.cost
            self._note_under_way(1)
            self._changed.notify()
        try:
            return await search.future
        except asyncio.CancelledError:
            search.is_gone = True
            raise

    async def answered_to(self, request: Request, search: Search) -> list[Any]:
        """Answer a search of a client who may go meanwhile: what nobody waits for is not begun."""
        is_long = self.is_busy or search.kind == _CALLS
        watch = asyncio.create_task(_note_departure(request, search)) if is_long else None
        try:
            return await self.answered(search)
        finally:
            if watch is not None:
                watch.cancel()

    async def called(self, request: Request, *calls: Callable[[], Any]) -> list[Any]:
        """Results of calls that may take long, one after the other, while their client is there."""
        run = copy_context().run
        return await self.answered_to(request, Search("", _CALLS, [partial(run, one) for one in calls], {}))

    def stop(self) -> None:
        """Let the threads end after what they are at; a further search starts others."""
        with self._changed:
            self._threads = []
            self._changed.notify_all()
        for one in self._beside:
            one.stop()

    def _queue_beside(self, gallery: str) -> SearchQueue | None:
        """Queue of the gallery's engine; None where candidates are found here, or that is not known yet."""
        opened = None if self._is_beside else self._galleries.opened(gallery)
        if opened is None or opened.snapshot.index.device != ENGINE:
            return None
        with self._changed:
            if not self._beside:
                own = self._galleries, self._metrics, self._keeper
                self._beside.append(
                    SearchQueue(
                        *own, n_threads=self._n_threads, most_seconds=self._most_seconds, is_beside=True
                    )
                )
            return self._beside[0]

    def _note_under_way(self, change: int) -> None:
        self._n_under_way += change
        self._metrics.under_way.inc(change)

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
        own = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or own not in self._threads)
                if not self._waiting:
                    return
                batch = self._take()
            self._finish(batch, time.monotonic())

    def _take(self) -> list[Search]:
        are_calls = self._waiting[0].kind == _CALLS
        most = 1 if are_calls else max(_MOST_TOGETHER, self._n_embedded_together())
        batch = take(self._waiting, n_idle=self._n_threads - self._n_at_work, most=most)
        self._n_at_work += 1
        self._waiting_cost -= sum(one.cost for one in batch)
        return batch

    def _finish(self, batch: list[Search], now: float) -> None:
        """Answer what was taken, but for what nobody waits for, or waits too long."""
        self._metrics.record_batch([now - one.since for one in batch])
        gone = [one for one in batch if one.is_gone]
        late = [one for one in batch if now - one.since > self._most_seconds and one not in gone]
        try:
            _tell([(one, self._too_many()) for one in gone] + [(one, self._refusal()) for one in late])
            self._answer([one for one in batch if one not in gone and one not in late])
        finally:
            with self._changed:
                self._n_at_work -= 1
                self._cost -= sum(one.cost for one in batch)
                self._note_under_way(-len(batch))

    def _answer(self, batch: list[Search]) -> None:
        begun = time.monotonic()
        # The state of a gallery is looked up once for all of them.
        matcher_of = cache(self._galleries.matcher)
        alike = defaultdict(list)
        for search in batch:
            if search.kind == _CALLS:
                _tell([(search, _made(search))])
                continue
            try:
                search.prepare(matcher_of)
                alike[id(search.matcher.embedder)].append(search)
            except BaseException as error:
                _tell([(search, error)])
        for searches in alike.values():
            self._embed(searches)
        n_queries = sum(len(one.queries) for one in batch)
        if n_queries:
            kind, spent = batch[0].kind, time.monotonic() - begun
            self._costs[kind] += _LEARNING_RATE * (spent / n_queries - self._costs[kind])
            self._usual_cost += _LEARNING_RATE * (spent / len(batch) - self._usual_cost)

    def _embed(self, searches: list[Search]) -> None:
        """Answer searches of one network; one that cannot be answered fails alone."""
        begun = time.perf_counter()
        tensors = [tensor for one in searches for tensor in one.tensors]
        ends = np.cumsum([0, *(len(one.tensors) for one in searches)]).tolist()
        infer, is_alone = searches[0].matcher.embedder.infer, 1 in (self._n_threads, self._n_at_work)
        try:
            raw = infer(tensors, alone=is_alone) if tensors else np.empty((0, 0), np.float32)
        except BaseException as error:
            _tell([(one, error) for one in searches])
            return
        seconds = time.perf_counter() - begun
        alike = defaultdict(list)
        for search, (begin, end) in zip(searches, pairwise(ends), strict=True):
            alike[search.question].append((search, raw[begin:end]))
        _tell([told for own in alike.values() for told in self._answered(own, seconds)])

    def _answered(
        self, own: Sequence[tuple[Search, FloatArray]], seconds: float
    ) -> list[tuple[Search, Outcome]]:
        searches, raws = zip(*own, strict=True)
        matcher = searches[0].matcher
        try:
            arguments = _arguments(searches, raws, seconds)
            found = matcher.search(**arguments)
            # What was found damaged while it was searched decides no answer.
            self._galleries.integrity.require_whole(matcher.gallery.name)
            self._metrics.record(found)
            self._galleries.drift.record(found, matcher)
            answers = iter(self._kept(self._galleries.drift.noted(found), searches, arguments))
        except EngineError as error:
            # It lies with none of them, and each may have taken seconds.
            return [(one, error) for one in searches]
        except BaseException as error:
            if len(own) == 1:
                return [(searches[0], error)]
            return [told for one in own for told in self._answered([one], seconds)]
        return [(one, list(islice(answers, len(one.queries)))) for one in searches]

    def _kept(
        self, answers: list[Answer], searches: Sequence[Search], arguments: dict[str, Any]
    ) -> list[Answer]:
        first = searches[0]
        if first.kept is not None:
            return [replace(one, search_id=first.kept) for one in answers]
        # An item of the gallery tells nothing of what others search for.
        if first.kind == "item_ids" or "asked" not in arguments:
            return answers
        is_image = first.kind == "images"
        queries = [OfferedQuery(one.sender, q if is_image else None) for one in searches for q in one.queries]
        embeddings = arguments["embedded"].rows if is_image else arguments["embeddings"]
        return self._keeper.offered(answers, first.matcher, arguments["asked"], queries, embeddings)


def _made(search: Search) -> Outcome:
    """Results of calls; None of those that are left when the client goes."""
    try:
        return [None if place and search.is_gone else call() for place, call in enumerate(search.queries)]
    except BaseException as error:
        return error


async def _note_departure(request: Request, search: Search) -> None:
    """Note when the client goes; its body was read, so that nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    search.is_gone = True


def _tell(outcomes: Sequence[tuple[Search, Outcome]]) -> None:
    """Hand outcomes to their event loops, each of which is woken once."""
    by_loop = defaultdict(list)
    for search, outcome in outcomes:
        by_loop[search.future.get_loop()].append((search.future, outcome))
    for loop, told in by_loop.items():
        # There is none left where the server has stopped.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, told)


def _settle(told: Sequence[tuple[asyncio.Future[list[Any]], Outcome]]) -> None:
    for future, outcome in told:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
