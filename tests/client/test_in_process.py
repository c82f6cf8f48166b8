"""An application in this process: the real one, and small ones that show what it is told."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.service.types import Encode, MakeSettings, View
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal_client import (
    AccessError,
    AsyncClient,
    Client,
    InvalidRequestError,
    NewEmbedding,
    NewItem,
    NotFoundError,
    Retries,
    ServerError,
    TooManyRequestsError,
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


def test_items_are_added_read_changed_and_removed(client: Client, image: Ask) -> None:
    item_id = "new/größe #42?/1.png"
    (added,) = client.add_item("shoes", image(50, 0), id=item_id, label="new", metadata={"price": 30}).added
    assert (added.id, added.replaced) == (item_id, False)
    assert client.get_item("shoes", item_id).metadata == {"price": 30}
    assert client.patch_item("shoes", item_id, label="newer").label == "newer"
    assert client.get_thumbnail("shoes", item_id).startswith(b"\xff\xd8")
    assert client.search("shoes", item_id=item_id, include_candidates=True).n_searched == 61
    assert len(list(client.iter_items("shoes", size=7))) == 61
    client.delete_item("shoes", item_id)
    with pytest.raises(NotFoundError) as gone:
        client.get_item("shoes", item_id)
    assert gone.value.kind == "item-not-found"


@pytest.mark.slow
def test_a_job_is_worked_on_and_waited_for(client: Client, image: Ask) -> None:
    """The application's lifespan runs, so that it has a worker."""
    states: list[str] = []
    job = client.start_calibration("shoes", target="fpir=10%")
    done = client.wait_for_job(job, every=0.05, on_progress=lambda one: states.append(one.state))
    assert (done.state, states[-1]) == ("succeeded", "succeeded")
    calibration = client.get_calibration("shoes", job.id)
    assert (calibration.is_active, calibration.record.target) == (True, calibration.record.target)
    assert client.search("shoes", image(3, 9)).threshold.calibration == job.id
    by_hand = client.put_threshold("shoes", 0.99)
    assert client.get_gallery("shoes").calibration is not None
    client.activate_calibration("shoes", job.id)
    assert [one.id for one in client.list_calibrations("shoes").calibrations] == [by_hand.record.id, job.id]


@pytest.mark.slow
def test_images_calibrate_too(client: Client, image: Ask) -> None:
    queries = [image(label, 9) for label in range(10)] + [image(label, 0) for label in range(60, 70)]
    labels = ["red shoe", "blé", "größe 42", "o'brien", "50% off", "鞋", "plain", "a+b", "x_y", "z-z"]
    labels += [f"absent {i}" for i in range(10)]
    job = client.start_calibration("shoes", images=queries, labels=labels, target="fnir=40%", activate=False)
    record = client.get_calibration("shoes", client.wait_for_job(job, every=0.05).id).record
    assert (record.source, record.n_with_mate, record.n_without_mate) == ("queries", 10, 10)


@pytest.mark.slow
def test_a_version_is_made_compared_and_activated(client: Client) -> None:
    job = client.reindex_gallery("shoes", index="Flat", activate="manual", comparison={"max_queries": 20})
    done = client.wait_for_job(job, every=0.05)
    versions = client.list_versions("shoes").versions
    assert [one.is_active for one in versions] == [False, True]
    comparison = client.get_comparison("shoes", str((done.result or {})["comparison"]))
    assert {one.version for one in comparison.variants} == {one.version for one in versions}
    assert client.get_pipeline("shoes").source == "settings"
    job = client.start_comparison("shoes", target="fpir=10%", pipelines={"rerank": ["contextual"]})
    client.wait_for_job(job, every=0.05)
    variants = client.get_comparison("shoes", job.id).variants
    chosen = client.activate_variant("shoes", job.id, len(variants) - 1)
    assert (chosen.source, chosen.comparison) == ("comparison", job.id)
    assert client.reset_pipeline("shoes").source == "settings"
    other = next(one.version for one in versions if one.version != client.get_gallery("shoes").version)
    assert client.activate_version("shoes", other).version == other
    assert [one.state for one in client.list_jobs(gallery="shoes").jobs] == ["succeeded"] * 2


@pytest.mark.slow
def test_a_folder_is_uploaded_within_the_limits(client: Client, catalog: Path) -> None:
    assert client.readyz().limits.max_batch == 8
    client.put_gallery("again")
    result = client.add_images("again", catalog)
    assert (result.n_added, result.failures) == (60, [])
    (catalog_size, gallery) = len(list(catalog.rglob("*.png"))), client.get_gallery("again")
    assert (gallery.n_items, gallery.n_labels) == (catalog_size, 10)
    client.delete_gallery("again")
    assert [one.name for one in client.list_galleries().galleries] == ["shoes"]


@pytest.mark.slow
def test_what_the_server_refuses_is_told_by_image(client: Client, image: Ask) -> None:
    with pytest.raises(InvalidRequestError) as alone:
        client.add_item("shoes", b"no image", id="a")
    assert (alone.value.status, alone.value.kind) == (400, "not-an-image")
    with pytest.raises(InvalidRequestError) as all_refused:
        client.add_items("shoes", [NewItem(b"no", id="a"), NewItem(b"none", id="b")])
    assert (all_refused.value.kind, all_refused.value.item_ids) == ("nothing-added", ["a", "b"])
    addition = client.add_items("shoes", [NewItem(b"no", id="a"), NewItem(image(50, 0), id="b")])
    assert ([one.id for one in addition.added], [one.id for one in addition.refused]) == (["b"], ["a"])


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


def test_a_limit_on_requests_says_when_to_come_again(data_dir: Path, make_settings: MakeSettings) -> None:
    waits: list[float] = []
    app = create_app(make_settings(data_dir, rate_limit="2/hour"))
    # Without waits of its own, so that what is waited is what the server says; its hours are the clock's.
    retries = Retries(seconds=10_000.0, attempts=3, draw=lambda: 0.0)
    with Client(app=app, sleep=waits.append, retries=retries) as client:
        client.list_galleries()
        client.list_galleries()
        with pytest.raises(TooManyRequestsError) as refused:
            client.list_galleries()
    assert refused.value.kind == "too-many-requests"
    assert len(waits) == 2
    assert all(1 <= one <= 3600 for one in waits)


def test_a_gallery_that_is_busy_says_when_to_come_again(data_dir: Path, make_settings: MakeSettings) -> None:
    """A removal is not repeated unasked."""
    gallery = Gallery.open(data_dir / "galleries" / "shoes")
    with gallery.writing(), Client(app=create_app(make_settings(data_dir))) as client:
        with pytest.raises(ServerError) as busy:
            client.delete_gallery("shoes")
        assert (busy.value.kind, busy.value.retry_after) == ("gallery-busy", 2.0)


@pytest.mark.slow
def test_ready_embeddings_are_added_and_found(
    data_dir: Path, make_settings: MakeSettings, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 12))
    ids, labels = [f"a/{i}" for i in range(40)], [f"label {i // 4}" for i in range(40)]
    parquet.write_table(
        pa.table({"id": ids, "label": labels, "embedding": list(vectors[:40])}), tmp_path / "a.parquet"
    )
    settings = make_settings(data_dir)
    source, gallery = EmbeddingSource.open(tmp_path / "a.parquet"), Gallery(settings.gallery_path("clips"))
    index_items(gallery, source, ServedBundles(settings).resolve(gallery, source, space="clip").embedder)
    items = [NewEmbedding(f"new {i}", vector) for i, vector in enumerate(vectors[40:])]
    with Client(app=create_app(settings)) as client:
        result = client.add_embeddings("clips", items, space="clip")
        again = client.add_embeddings("clips", items[:3])
        answer = client.search("clips", embedding=vectors[47], limit=1, rerank="off", include_candidates=True)
        assert (result.n_added, again.n_unchanged, client.get_gallery("clips").n_items) == (20, 3, 60)
        assert answer.candidates[0].id == "new 7"


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


def test_nothing_is_told_to_an_application_that_is_never_asked(is_async: bool) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError

    assert asking(fail, is_async, n=0) == []


def test_an_application_that_cannot_begin_is_told(is_async: bool) -> None:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    with pytest.raises(RuntimeError, match="could not begin"):
        asking(app_of(lambda _: JSONResponse(GALLERIES), lifespan), is_async)


def test_an_application_need_not_know_of_lifespans(is_async: bool) -> None:
    async def plain(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await JSONResponse(GALLERIES)(scope, receive, send)

    assert [one.galleries for one in asking(plain, is_async)] == [[]]


def test_an_unexpected_error_is_answered_as_by_a_server(is_async: bool) -> None:
    def fail(_: Request) -> Response:
        raise ZeroDivisionError

    with pytest.raises(ServerError, match="500"):
        asking(app_of(fail), is_async)


def test_what_is_compressed_is_read(is_async: bool) -> None:
    body = gzip.compress(b'{"galleries": []}')
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answers = asking(app_of(lambda _: Response(body, headers=headers)), is_async)
    assert [one.galleries for one in answers] == [[]]


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
