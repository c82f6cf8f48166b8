"""Searches wait for a thread, and not long; what waits together is embedded together."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.service.types import MakeSettings
from tests.waiting import SECONDS, Clock, wait_until
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.models.errors import NoDirectionError, NotAnImageError
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http import search_queue
from vicinal.service.http.search_queue import Search
from vicinal.service.http.state import State
from vicinal.service.measuring.matcher import Matcher

OPTIONS: dict[str, Any] = {"limit": 5}


@dataclass
class Network:
    """Stands before the network of an application: counts what it is given, and can be held.

    Attributes:
        runs: Images of every run, and whether the run had the processor alone.
        go_on: Runs wait for it.
    """

    state: State
    runs: list[tuple[int, bool]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        embedder = self.state.galleries.own.embedder
        infer = embedder.infer

        def held(tensors: list[FloatArray], *, alone: bool = True) -> FloatArray:
            self.runs.append((len(tensors), alone))
            assert self.go_on.wait(30)
            return infer(tensors, alone=alone)

        embedder.infer = held  # type: ignore[method-assign]

    @property
    def n_images(self) -> int:
        """Images that it was given."""
        return sum(n for n, _ in self.runs)

    def is_held(self) -> bool:
        """Whether a run waits."""
        return bool(self.runs) and not self.go_on.is_set()


@pytest.fixture
def make_state(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[Callable[..., State]]:
    made = []

    def make(**changes: object) -> State:
        state = State(make_settings(**{"data_dir": calibrated_dir, "query_cache_entries": 0, **changes}))
        made.append(state)
        return state

    yield make
    for state in made:
        state.searches.stop()


@pytest.fixture
def pictures(view: Callable[[int, int], Image.Image], encode: Callable[..., bytes]) -> list[bytes]:
    return [encode(view(number % 3, number)) for number in range(8)]


def of_images(*images: bytes) -> Search:
    return Search("shoes", "images", images, OPTIONS)


async def first_then(
    state: State, network: Network, first: Search, others: list[Search], *, n_runs: int = 1
) -> list[Any]:
    """Outcomes of searches, all but the first begun while the network is held by the first, until so many
    runs are.
    """
    tasks = [asyncio.create_task(state.searches.answered(first))]
    while not network.is_held():
        await asyncio.sleep(0.005)
    tasks += [asyncio.create_task(state.searches.answered(one)) for one in others]
    # Each is in the queue with its first step.
    await asyncio.sleep(0.005)
    while len(network.runs) < n_runs:
        await asyncio.sleep(0.005)
    network.go_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_together_is_embedded_together(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    network = Network(state)
    searches = [of_images(picture) for picture in [*pictures, *pictures[:4]]]
    outcomes = asyncio.run(first_then(state, network, searches[0], searches[1:]))
    # Eight is what a thread takes together.
    assert [n for n, _ in network.runs] == [1, 8, 3]
    alone = make_state(threads=1)
    for picture, outcome in zip(pictures, outcomes, strict=False):
        (expected,) = alone.galleries.matcher("shoes").search(images=[picture], **OPTIONS)
        assert [one.id for one in outcome[0].matches] == [one.id for one in expected.matches]
        assert outcome[0].top_score == pytest.approx(expected.top_score, abs=1e-6)
        assert outcome[0].milliseconds.keys() == expected.milliseconds.keys()


def test_a_search_that_nothing_waits_beside_has_the_processor_alone(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=2)
    network = Network(state)
    first, second = of_images(pictures[0]), of_images(pictures[1])
    outcomes = asyncio.run(first_then(state, network, first, [second], n_runs=2))
    assert network.runs == [(1, True), (1, False)]
    assert all(isinstance(one, list) for one in outcomes)


def test_a_thread_that_is_yet_to_begin_leaves_the_processor(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, start, late = make_state(threads=2), threading.Thread.start, []

    def held_back(thread: threading.Thread) -> None:
        if thread.name == "search 1":
            late.append(thread)
        else:
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", held_back)
    network = Network(state)
    network.go_on.set()
    asyncio.run(state.searches.answered(of_images(pictures[0])))
    assert (network.runs, len(late)) == ([(1, True)], 1)
    start(late[0])


def test_one_bad_picture_fails_alone(make_state: Callable[..., State], pictures: list[bytes]) -> None:
    state = make_state(threads=1)
    network = Network(state)
    searches = [of_images(pictures[0]), of_images(b"no picture"), of_images(pictures[1])]
    _, bad, good = asyncio.run(first_then(state, network, of_images(pictures[2]), searches[1:]))
    assert isinstance(bad, NotAnImageError)
    assert good[0].matches


def test_a_network_that_fails_fails_those_that_it_ran_for_and_no_others(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    embedder = state.galleries.own.embedder
    infer, failures = embedder.infer, [RuntimeError("out of memory")]

    def failing(tensors: list[FloatArray], *, alone: bool = True) -> FloatArray:
        if failures:
            raise failures.pop()
        return infer(tensors, alone=alone)

    embedder.infer = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(state.searches.answered(of_images(pictures[0])))
    assert asyncio.run(state.searches.answered(of_images(pictures[0])))[0].matches


def test_embeddings_and_items_wait_in_the_same_line(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    network = Network(state)
    row = state.galleries.own.embedder.finish(np.ones((1, state.galleries.own.bundle.dim), np.float32))
    others = [
        Search("shoes", "embeddings", row.tolist(), OPTIONS),
        Search("shoes", "item_ids", ["plain/view 0.png"], OPTIONS),
        of_images(pictures[1]),
    ]
    outcomes = asyncio.run(first_then(state, network, of_images(pictures[0]), others))
    assert all(outcome[0].gallery == "shoes" for outcome in outcomes)
    assert [n for n, _ in network.runs] == [1, 1]


def calls_of(state: State, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes the queries of each call of the matcher."""
    calls: list[int] = []
    search = Matcher.search

    def noted(self: Matcher, **arguments: Any) -> Any:
        answers = search(self, **arguments)
        calls.append(len(answers))
        return answers

    monkeypatch.setattr(Matcher, "search", noted)
    return calls


def test_what_asks_for_the_same_is_answered_by_one_call(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(threads=1)
    network = Network(state)
    ids = [f"plain/view {number}.png" for number in range(3)]
    searches = [Search("shoes", "item_ids", [one], OPTIONS) for one in ids]
    others = [
        Search("shoes", "item_ids", ids[:2], OPTIONS),
        Search("shoes", "item_ids", ids[:1], {"limit": 1}),
        Search("shoes", "item_ids", ids[:1], {"limit": 1, "filter": "label = 'plain'"}),
    ]
    matcher = state.galleries.matcher("shoes")
    expected = [matcher.search(item_ids=one.queries, **one.options) for one in searches + others]
    calls = calls_of(state, monkeypatch)
    outcomes = asyncio.run(first_then(state, network, of_images(pictures[0]), searches + others))[1:]
    assert sorted(calls) == [1, 1, 1, 5]
    found = [[answer.matches for answer in outcome] for outcome in outcomes]
    assert found == [[answer.matches for answer in answers] for answers in expected]


def test_one_that_cannot_be_answered_fails_alone(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(threads=1)
    dim = state.galleries.own.bundle.dim
    rows = [[1.0] * dim, [1.0] * (dim + 1), [float("nan")] * dim, [0.5] * dim]
    searches = [Search("shoes", "embeddings", [row], OPTIONS) for row in rows]
    searches.append(Search("shoes", "item_ids", ["no such item"], OPTIONS))
    searches.append(Search("shoes", "item_ids", ["plain/view 0.png"], OPTIONS))
    calls = calls_of(state, monkeypatch)
    outcomes = asyncio.run(first_then(state, Network(state), of_images(pictures[0]), searches))[1:]
    kinds = [type(one).__name__ for one in outcomes]
    assert kinds == ["list", "EmbeddingError", "NoDirectionError", "list", "ItemNotFoundError", "list"]
    assert calls == [1] * 4
    assert outcomes[0][0].matches == outcomes[3][0].matches


def test_a_network_that_gives_no_numbers_fails_its_search_and_ends_no_thread(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    embedder = state.galleries.own.embedder
    infer, spoilt = embedder.infer, [False, True]

    def spoiling(tensors: list[FloatArray], *, alone: bool = True) -> FloatArray:
        raw = infer(tensors, alone=alone)
        return raw * np.float32("nan") if spoilt.pop() else raw

    embedder.infer = spoiling  # type: ignore[method-assign, assignment]
    with pytest.raises(NoDirectionError):
        asyncio.run(state.searches.answered(of_images(pictures[0])))
    assert asyncio.run(state.searches.answered(of_images(pictures[0])))[0].matches


def test_what_is_on_its_way_to_the_queue_counts_as_waiting(
    make_state: Callable[..., State], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_queue, "_OVERLOAD_SECONDS", 1000.0)
    state = make_state(threads=1, max_wait_seconds=0.05)
    # Each is expected to take 2 ms before any was measured.
    state.searches.check(n_present=25)
    with pytest.raises(TooManyRequestsError):
        state.searches.check(n_present=26)
    # Where searches are turned away, ten milliseconds of work may wait.
    state.searches.check(n_present=4)
    with pytest.raises(TooManyRequestsError):
        state.searches.check(n_present=5)


def test_a_queue_that_stays_long_is_no_burst(
    make_state: Callable[..., State], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(search_queue, "time", SimpleNamespace(monotonic=clock))
    # Each is expected to take 2 ms before any was measured: 800 ms, of a minute that they may wait.
    many = 400
    stays, is_emptied = make_state(threads=1).searches, make_state(threads=1).searches
    for queue in (stays, is_emptied):
        queue.check(many)
    clock.now += search_queue._STANDING_SECONDS + 0.1
    with pytest.raises(TooManyRequestsError):
        stays.check(many)
    is_emptied.check(0)
    is_emptied.check(many)


def test_what_would_wait_too_long_is_turned_away_at_once(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One runs, and two wait at most 40 s; the queue is no longer called short after a second otherwise.
    monkeypatch.setitem(search_queue._FIRST_GUESS, "images", 20.0)
    monkeypatch.setattr(search_queue, "_STANDING_SECONDS", 1000.0)
    state = make_state(threads=1, max_wait_seconds=50.0)
    network = Network(state)
    searches = [of_images(picture) for picture in pictures]

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(state.searches.answered(searches[0]))]
        while not network.is_held():
            await asyncio.sleep(0.005)
        tasks += [asyncio.create_task(state.searches.answered(one)) for one in searches[1:]]
        while sum(task.done() for task in tasks) < len(searches) - 3:
            await asyncio.sleep(0.005)
        for task in tasks[:3]:
            assert not task.done()
        outcomes = [task.exception() for task in tasks if task.done()]
        for one in searches:
            # Nobody waits for the three that are left, so that they are not late.
            one.is_gone = True
        network.go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return outcomes

    refused = asyncio.run(run())
    assert all(isinstance(one, TooManyRequestsError) for one in refused)
    assert "max_wait_seconds = 50" in str(refused[0])
    assert refused[0].headers["Retry-After"] == "60"


@pytest.mark.slow
def test_while_searches_are_turned_away_only_as_many_wait_as_keep_the_threads_busy(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def n_admitted(state: State) -> int:
        network = Network(state)

        async def run() -> int:
            tasks = [asyncio.create_task(state.searches.answered(of_images(one))) for one in pictures]
            # Each is in the queue, or turned away, with its first step.
            await asyncio.sleep(0.005)
            n = sum(not task.done() for task in tasks)
            network.go_on.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            return n

        return asyncio.run(run())

    monkeypatch.setattr(search_queue, "_STANDING_SECONDS", 1000.0)
    # Negative control: a burst may wait as long as there is time.
    assert n_admitted(make_state(threads=1)) == len(pictures)
    monkeypatch.setattr(search_queue, "_OVERLOAD_SECONDS", 1000.0)
    state = make_state(threads=1)
    state.searches._refusal()
    # Two wait, and up to two are worked on.
    assert n_admitted(state) in (2, 3, 4)
    monkeypatch.setattr(search_queue, "_OVERLOAD_SECONDS", 0.0)
    assert n_admitted(state) == len(pictures)


@pytest.mark.slow
@pytest.mark.parametrize("why", ["gone", "late"])
def test_what_nobody_waits_for_any_more_costs_nothing(
    make_state: Callable[..., State], pictures: list[bytes], why: str
) -> None:
    state = make_state(threads=1, max_wait_seconds=60.0)
    network = Network(state)
    other = of_images(pictures[1])

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(state.searches.answered(of_images(pictures[0])))]
        while not network.is_held():
            await asyncio.sleep(0.005)
        tasks.append(asyncio.create_task(state.searches.answered(other)))
        # It is in the queue with its first step.
        await asyncio.sleep(0.005)
        if why == "late":
            other.since -= 100.0
        other.is_gone = why == "gone"
        network.go_on.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert first[0].matches
    assert isinstance(second, TooManyRequestsError)
    assert network.n_images == 1
    # It is counted out again.
    wait_until(lambda: not state.searches.is_busy)


def test_a_cancelled_request_is_not_worked_on(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    network = Network(state)

    async def run() -> None:
        first = asyncio.create_task(state.searches.answered(of_images(pictures[0])))
        while not network.is_held():
            await asyncio.sleep(0.005)
        second = asyncio.create_task(state.searches.answered(of_images(pictures[1])))
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.sleep(0.02)
        network.go_on.set()
        await first

    asyncio.run(run())
    wait_until(lambda: not state.searches.is_busy)
    assert network.n_images == 1


def test_threads_end_when_the_queue_stops(make_state: Callable[..., State], pictures: list[bytes]) -> None:
    state = make_state(threads=2)
    asyncio.run(state.searches.answered(of_images(pictures[0])))
    threads = state.searches._threads
    assert len(threads) == 2
    state.searches.stop()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    # Whoever asks again is answered by others.
    assert asyncio.run(state.searches.answered(of_images(pictures[0])))[0].matches


def test_a_gallery_whose_engine_hangs_holds_up_no_other(
    make_state: Callable[..., State],
    calibrated_base: Path,
    tmp_path: Path,
    pictures: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = make_state(threads=1, data_dir=shutil.copytree(calibrated_base, tmp_path / "copy"))
    copy_gallery(state.galleries.gallery("shoes"), "boots")
    opened, search, go_on = state.galleries.opened, Matcher.search, threading.Event()

    def with_engine(name: str) -> Any:
        index = SimpleNamespace(device="milvus")
        return SimpleNamespace(snapshot=SimpleNamespace(index=index)) if name == "boots" else opened(name)

    def hangs(matcher: Matcher, **arguments: Any) -> Any:
        assert matcher.gallery.name != "boots" or go_on.wait(30)
        return search(matcher, **arguments)

    monkeypatch.setattr(state.galleries, "opened", with_engine)
    monkeypatch.setattr(Matcher, "search", hangs)

    async def run() -> None:
        hanging = [
            asyncio.create_task(state.searches.answered(Search("boots", "images", [one], OPTIONS)))
            for one in pictures[:3]
        ]
        await asyncio.sleep(0.005)
        assert state.searches.is_busy
        assert (await state.searches.answered(of_images(pictures[3])))[0].matches
        assert not any(one.done() for one in hanging)
        go_on.set()
        assert all([(await one)[0].matches for one in hanging])

    asyncio.run(run())
