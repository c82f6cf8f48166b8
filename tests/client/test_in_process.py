"""An application in this process: the real one, and small ones that show what it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_until
from vicinal.service.http.app import create_app
from vicinal_client import (
    AccessError,
    AsyncClient,
    Client,
    InvalidRequestError,
    ServerError,
)

GALLERIES = {"galleries": []}
Ask = Callable[..., Any]


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[Client]:
    with Client(app=create_app(make_settings(data_dir, max_image_bytes=300_000, max_batch=8))) as made:
        yield made


@pytest.fixture
def image(view: View, encode: Encode) -> Callable[[int, int], bytes]:
    return lambda label, number: encode(view(label, number))


def test_a_search_is_answered_by_the_real_application(client: Client, image: Ask) -> None:
    answer = client.search("shoes", image(3, 9), limit=3, include_candidates=True)
    assert (answer.no_match, answer.threshold.state, answer.candidates[0].label) == (None, "none", "o'brien")
    same = client.search_batch("shoes", [image(3, 9), image(4, 9)], limit=3)
    assert [one.candidates[0].label for one in same.answers] == ["o'brien", "50% off"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "kind"), [(None, "unauthorized"), ("guess", "unauthorized"), ("reads", "forbidden")]
)
def test_a_key_without_the_scope_is_refused(
    key: str | None, kind: str, data_dir: Path, make_settings: MakeSettings
) -> None:
    keys = {"reads": ["search"], "writes": ["search", "write"]}
    app = create_app(make_settings(data_dir, api_keys=keys))
    with Client(app=app, api_key=key) as client, pytest.raises(AccessError) as refused:
        client.delete_item("shoes", "plain/view 0.png")
    assert refused.value.kind == kind
    with Client(app=app, api_key="writes") as client:
        client.delete_item("shoes", "plain/view 0.png")


@pytest.mark.slow
def test_the_async_client_does_the_same(data_dir: Path, make_settings: MakeSettings, catalog: Path) -> None:
    async def use() -> tuple[int, str]:
        async with AsyncClient(app=create_app(make_settings(data_dir, max_batch=8))) as client:
            await client.put_gallery("again")
            result = await client.add_images("again", catalog, concurrency=3)
            with pytest.raises(InvalidRequestError, match="60 live changes only: compact it first"):
                await client.start_calibration("again")
            assert (await client.compact("again", every=0.05)).n_changes == 0
            job = await client.start_calibration("again")
            done = await client.wait_for_job(job, every=0.05)
            answers = await asyncio.gather(
                *(
                    client.search("again", item_id=one.id, limit=1)
                    for one in (await client.list_items("again", size=5)).items
                )
            )
            assert len(answers) == 5
            return result.n_added, done.state

    assert asyncio.run(use()) == (60, "succeeded")


def asking(app: Any, is_async: bool, *, n: int = 1) -> list[Any]:
    """What an application answers when its galleries are listed n times."""
    if not is_async:
        with Client(app=app) as client:
            return [client.list_galleries() for _ in range(n)]

    async def ask() -> list[Any]:
        async with AsyncClient(app=app) as client:
            return list(await asyncio.gather(*(client.list_galleries() for _ in range(n))))

    return asyncio.run(ask())


def app_of(answer: Callable[[Request], Response], lifespan: Any = None) -> Starlette:
    return Starlette(routes=[Route("/v1/galleries", answer)], lifespan=lifespan)


def test_the_lifespan_is_told_once_around_all_requests(is_async: bool) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        told.append("startup")
        await asyncio.sleep(0.01)
        yield
        told.append("shutdown")

    def answer(_: Request) -> Response:
        told.append("request")
        return JSONResponse(GALLERIES)

    asking(app_of(answer, lifespan), is_async, n=3)
    assert told == ["startup", "request", "request", "request", "shutdown"]


def test_an_application_that_cannot_begin_is_told(is_async: bool) -> None:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    with pytest.raises(RuntimeError, match="could not begin"):
        asking(app_of(lambda _: JSONResponse(GALLERIES), lifespan), is_async)


def test_an_unexpected_error_is_answered_as_by_a_server(is_async: bool) -> None:
    def fail(_: Request) -> Response:
        raise ZeroDivisionError

    with pytest.raises(ServerError, match="500"):
        asking(app_of(fail), is_async)


def test_threads_share_a_client() -> None:
    app = app_of(lambda _: JSONResponse(GALLERIES))
    with Client(app=app) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.list_galleries(), range(64)))
    assert len(answers) == 64


def test_its_thread_ends_with_the_client() -> None:
    before = set(threading.enumerate())
    client = Client(app=app_of(lambda _: JSONResponse(GALLERIES)))
    client.list_galleries()
    client.close()
    client.close()
    left = set(threading.enumerate()) - before
    assert not any(one.name == "vicinal-in-process" for one in left)
    # Those that ran the application's functions end beside it.
    wait_until(lambda: not any(one.is_alive() for one in left))
