"""Searches wait for a thread, and not long; what waits together is embedded together."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from anyio import to_thread
from PIL import Image

from tests.service.types import MakeSettings
from tests.waiting import SECONDS, Clock
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.models.errors import NoDirectionError
from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http import search_queue
from vicinal.service.http.app import ROUTERS, create_app
from vicinal.service.http.gate import QueryRoute, SearchRoute
from vicinal.service.http.search_queue import Search, SearchQueue, take
from vicinal.service.http.state import State, state_of
from vicinal.service.measuring.matcher import Matcher

OPTIONS: dict[str, Any] = {"limit": 5}


def runs_of(state: State) -> list[tuple[int, bool]]:
    """Images of every run of the network from now on, and whether the run had the processor alone."""
    embedder, runs = state.galleries.own.embedder, list[tuple[int, bool]]()
    infer = embedder.infer

    def noted(tensors: list[FloatArray], *, alone: bool = True) -> FloatArray:
        runs.append((len(tensors), alone))
        return infer(tensors, alone=alone)

    embedder.infer = noted  # type: ignore[method-assign]
    return runs


@pytest.fixture
def make_state(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., State]:
    """Makes the state of a server whose threads do not run: a test takes their steps."""
    monkeypatch.setattr(SearchQueue, "_start", lambda _: None)

    def make(**changes: object) -> State:
        return State(make_settings(**{"data_dir": calibrated_dir, "query_cache_entries": 0, **changes}))

    return make


@pytest.fixture
def pictures(view: Callable[[int, int], Image.Image], encode: Callable[..., bytes]) -> list[bytes]:
    return [encode(view(number % 3, number)) for number in range(8)]


def of_images(*images: bytes) -> Search:
    return Search("shoes", "images", images, OPTIONS)


async def asked(state: State, *searches: Search) -> list[asyncio.Task[Any]]:
    """Let searches wait; each is in the queue, or turned away, with its first step."""
    tasks = [asyncio.create_task(state.searches.answered(one)) for one in searches]
    await asyncio.sleep(0)
    return tasks


def work_off(queue: SearchQueue) -> None:
    """Do what the threads of a queue do, until nothing waits."""
    while queue._waiting:
        queue._finish(queue._take(), search_queue.time.monotonic())


def outcomes_of(state: State, *searches: Search) -> list[Any]:
    """Outcomes of searches that wait together."""

    async def run() -> list[Any]:
        tasks = await asked(state, *searches)
        work_off(state.searches)
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("line", "limits", "n"),
    [
        ([("images", 1)] * 12, {}, 8),
        ([("images", 1)] * 12, {"most": 20}, 12),
        ([("images", 3)] * 4, {}, 2),
        ([("images", 20), ("images", 1)], {}, 1),
        ([("images", 1), ("images", 1), ("item_ids", 1), ("images", 1)], {}, 2),
        # What waits is shared out to all threads that have nothing to do, or are yet to begin.
        ([("images", 1)] * 6, {"n_idle": 2}, 3),
        ([("images", 1)], {"n_idle": 2}, 1),
        # All are at work, and one takes more.
        ([("images", 1)] * 6, {"n_idle": 0}, 6),
    ],
)
def test_a_thread_takes_those_of_a_kind_that_wait_longest_and_its_share(
    line: list[tuple[str, int]], limits: dict[str, int], n: int
) -> None:
    searches = deque(Search("shoes", kind, ["x"] * n_queries, OPTIONS) for kind, n_queries in line)
    expected = list(searches)
    taken = take(searches, **{"n_idle": 1, "most": 8, **limits})
    assert (taken, list(searches)) == (expected[:n], expected[n:])


def test_what_waits_together_is_embedded_together(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    runs = runs_of(state)
    searches = [of_images(picture) for picture in [*pictures, *pictures[:4]]]
    outcomes = outcomes_of(state, *searches)
    assert [n for n, _ in runs] == [8, 4]
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
    runs = runs_of(state)

    async def run() -> None:
        tasks = await asked(state, of_images(pictures[0]), of_images(pictures[1]))
        queue = state.searches
        for taken in [queue._take(), queue._take()]:
            queue._finish(taken, search_queue.time.monotonic())
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert runs == [(1, False), (1, True)]


def out_of_memory(_: FloatArray) -> FloatArray:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(out_of_memory, RuntimeError), (lambda raw: raw * np.float32("nan"), NoDirectionError)],
)
def test_a_network_that_fails_fails_those_that_it_ran_for_and_no_others(
    make_state: Callable[..., State], pictures: list[bytes], spoil: Any, error: type
) -> None:
    state = make_state(threads=1)
    embedder = state.galleries.own.embedder
    infer, spoils = embedder.infer, [spoil]

    def failing(tensors: list[FloatArray], *, alone: bool = True) -> FloatArray:
        raw = infer(tensors, alone=alone)
        return spoils.pop()(raw) if spoils else raw

    embedder.infer = failing  # type: ignore[method-assign]
    assert [type(one) for one in outcomes_of(state, of_images(pictures[0]))] == [error]
    assert outcomes_of(state, of_images(pictures[0]))[0][0].matches


def test_embeddings_and_items_wait_in_the_same_line(
    make_state: Callable[..., State], pictures: list[bytes]
) -> None:
    state = make_state(threads=1)
    runs = runs_of(state)
    row = state.galleries.own.embedder.finish(np.ones((1, state.galleries.own.bundle.dim), np.float32))
    outcomes = outcomes_of(
        state,
        of_images(pictures[0]),
        Search("shoes", "embeddings", row.tolist(), OPTIONS),
        Search("shoes", "item_ids", ["plain/view 0.png"], OPTIONS),
        of_images(pictures[1]),
    )
    assert all(outcome[0].gallery == "shoes" for outcome in outcomes)
    assert [n for n, _ in runs] == [1, 1]


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
    make_state: Callable[..., State], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(threads=1)
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
    outcomes = outcomes_of(state, *searches, *others)
    assert sorted(calls) == [1, 1, 5]
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
    searches += [of_images(b"no picture"), of_images(pictures[0])]
    calls = calls_of(state, monkeypatch)
    outcomes = outcomes_of(state, *searches)
    kinds = [type(one).__name__ for one in outcomes]
    # Of a picture, an embedding and an item alike.
    assert kinds[:4] == ["list", "EmbeddingError", "NoDirectionError", "list"]
    assert kinds[4:] == ["ItemNotFoundError", "list", "NotAnImageError", "list"]
    assert calls == [1] * 4
    assert outcomes[0][0].matches == outcomes[3][0].matches


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
    # Three wait 60 s, which is more than a fourth one may.
    monkeypatch.setitem(search_queue._FIRST_GUESS, "images", 20.0)
    state = make_state(threads=1, max_wait_seconds=50.0)
    *answered, refused = outcomes_of(state, *[of_images(picture) for picture in pictures[:4]])
    assert [type(one) for one in answered] == [list] * 3
    assert isinstance(refused, TooManyRequestsError)
    assert "max_wait_seconds = 50" in str(refused)
    assert refused.headers["Retry-After"] == "60"


def test_while_searches_are_turned_away_only_as_many_wait_as_keep_the_threads_busy(
    make_state: Callable[..., State], pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(search_queue, "time", SimpleNamespace(monotonic=clock, perf_counter=clock))
    state = make_state(threads=1)
    searches = [of_images(one) for one in pictures]

    def n_answered() -> int:
        return [type(one) for one in outcomes_of(state, *searches)].count(list)

    # Negative control: a burst may wait as long as there is time.
    assert n_answered() == len(pictures)
    state.searches._refusal()
    # Each is expected to take more than 10 ms: those wait that are embedded together.
    assert n_answered() == state.searches._n_embedded_together()
    clock.now += search_queue._OVERLOAD_SECONDS
    assert n_answered() == len(pictures)


@pytest.mark.parametrize("why", ["gone", "late", "cancelled"])
def test_what_nobody_waits_for_any_more_costs_nothing(
    make_state: Callable[..., State], pictures: list[bytes], why: str
) -> None:
    state = make_state(threads=1, max_wait_seconds=60.0)
    runs, other = runs_of(state), of_images(pictures[1])

    async def run() -> list[Any]:
        tasks = await asked(state, of_images(pictures[0]), other)
        other.since -= 100.0 if why == "late" else 0.0
        other.is_gone = why == "gone"
        if why == "cancelled":
            tasks[1].cancel()
            await asyncio.sleep(0)
        work_off(state.searches)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(run())
    assert first[0].matches
    assert isinstance(second, asyncio.CancelledError if why == "cancelled" else TooManyRequestsError)
    assert runs == [(1, True)]
    # It is counted out again.
    assert not state.searches.is_busy


def test_threads_end_when_the_queue_stops(
    calibrated_dir: Path, make_settings: MakeSettings, pictures: list[bytes]
) -> None:
    state = State(make_settings(calibrated_dir, threads=2))
    asyncio.run(state.searches.answered(of_images(pictures[0])))
    threads = state.searches._threads
    assert len(threads) == 2
    state.searches.stop()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    # Whoever asks again is answered by others.
    assert asyncio.run(state.searches.answered(of_images(pictures[0])))[0].matches
    state.searches.stop()


def test_a_gallery_whose_engine_hangs_holds_up_no_other(
    make_state: Callable[..., State],
    calibrated_base: Path,
    tmp_path: Path,
    pictures: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = make_state(threads=1, data_dir=shutil.copytree(calibrated_base, tmp_path / "copy"))
    copy_gallery(state.galleries.gallery("shoes"), "boots")
    opened = state.galleries.opened

    def with_engine(name: str) -> Any:
        index = SimpleNamespace(device="milvus")
        return SimpleNamespace(snapshot=SimpleNamespace(index=index)) if name == "boots" else opened(name)

    monkeypatch.setattr(state.galleries, "opened", with_engine)

    async def run() -> None:
        hanging = await asked(state, *[Search("boots", "images", [one], OPTIONS) for one in pictures[:3]])
        assert state.searches.is_busy
        (other,) = await asked(state, of_images(pictures[3]))
        work_off(state.searches)
        assert (await other)[0].matches
        assert not any(one.done() for one in hanging)
        work_off(state.searches._beside[0])
        assert all([(await one)[0].matches for one in hanging])

    asyncio.run(run())


def test_calls_are_made_in_turn_while_their_client_is_there(make_state: Callable[..., State]) -> None:
    queue, made = make_state(threads=1, max_wait_seconds=60.0)._calls[False], list[str]()
    first, second = (Search("", "calls", [partial(made.append, name)] * 3, {}) for name in "ab")

    def leave() -> None:
        second.is_gone = True

    second.queries = [*second.queries[:1], leave, *second.queries[1:]]

    async def run() -> None:
        tasks = [asyncio.create_task(queue.answered(one)) for one in (first, second)]
        await asyncio.sleep(0)
        work_off(queue)
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert made == ["a", "a", "a", "b"]


LONG = {
    "list_labels": ("GET", "labels"),
    "list_items": ("GET", "items?filter=label = 'plain'"),
    "get_storage": ("GET", "storage"),
    "get_image": ("GET", "image?id=a"),
    "get_kept_picture": ("GET", "kept/00/picture"),
    "answer_search": ("POST", "answers"),
    "answer_searches": ("POST", "answer-batches"),
    "take_back_search_answer": ("DELETE", "answers/1"),
}
SHORT = {
    *("get_item", "get_item_at", "get_thumbnail", "get_thumbnail_at", "list_metadata_keys"),
    *("get_gallery", "list_galleries", "list_aliases", "list_versions", "get_compaction"),
}
BODIES: dict[str, Any] = {
    "answer_search": {"search_id": "00", "absent": True},
    "answer_searches": {"answers": [{"search_id": "00", "wrong": "a"}]},
}


def test_whatever_may_take_long_for_who_may_search_waits_in_a_line_of_its_own() -> None:
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, SearchRoute)]
    assert {one.name for one in routes if not isinstance(one, QueryRoute)} == {*LONG, *SHORT}


@pytest.mark.parametrize("name", LONG)
def test_what_waits_too_long_is_turned_away_and_probes_are_answered_whatever_is_full(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(SearchQueue, "_start", lambda _: None)
    keys = {"eve": ["search"], "ann": ["search", "write"]}
    app = create_app(make_settings(calibrated_dir, max_wait_seconds=1.0, api_keys=keys))
    queue, (method, path) = state_of(app)._calls[False], LONG[name]
    queue._costs["calls"] = 9.0

    async def run() -> list[int]:
        threads = to_thread.current_default_thread_limiter()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            address, body = f"/v1/galleries/shoes/{path}", BODIES.get(name)
            eve, ann = (
                partial(client.request, method, address, json=body, headers={"X-API-Key": one})
                for one in keys
            )
            first, other = asyncio.create_task(eve()), asyncio.create_task(ann())
            while not (queue._waiting and state_of(app)._calls[True]._waiting):
                assert not first.done(), first.result().text
                await asyncio.sleep(0)
            for _ in range(int(threads.total_tokens)):
                threads.acquire_on_behalf_of_nowait(object())
            told = [await client.get(one) for one in ("/livez", "/readyz")]
            told.append(await eve())
            for one in (first, other):
                one.cancel()
            return [one.status_code for one in told]

    assert asyncio.run(run()) == [200, 200, 429]
