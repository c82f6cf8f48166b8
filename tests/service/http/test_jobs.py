"""Jobs over HTTP: lists, single jobs, cancelling, and events through a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.service.jobs.conftest import claim
from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving
from vicinal.service.http.state import state_of
from vicinal.service.jobs import events
from vicinal.service.jobs.job_log import JobLog
from vicinal.service.jobs.records import Job, JobProgress, new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.keys import KeyRecord

Event = dict[str, Any]
SECONDS = 30.0


@pytest.fixture
def app(tmp_path: Path, make_settings: MakeSettings) -> FastAPI:
    """An application whose jobs nobody works on but the test."""
    return create_app(make_settings(tmp_path / "data", run_jobs=False))


@pytest.fixture
def store(app: FastAPI) -> JobStore:
    return state_of(app).jobs


@pytest.fixture
def api(app: FastAPI) -> TestClient:
    return TestClient(app)


@pytest.fixture
def job(store: JobStore) -> Job:
    return store.create(new_job("steps", "shoes", {"source": "photos"}))


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as base:
        yield base


@contextmanager
def following(url: str, job: Job, key: str) -> Iterator[Iterator[Event]]:
    """The events of a job, as they come."""
    headers = {"X-API-Key": key}
    with httpx.stream("GET", f"{url}/v1/jobs/{job.id}/events", headers=headers, timeout=SECONDS) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield parsed(response.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[Event]:
    fields: Event = {}
    for line in lines:
        if not line:
            if fields:
                yield fields
            fields = {}
        elif line.startswith(":"):
            yield {"comment": line}
        else:
            name, _, value = line.partition(": ")
            fields[name] = value


def advance(store: JobStore, job_id: str, **changes: Any) -> Job:
    """What the worker of a job tells, which takes it where it waits."""
    job = store.get(job_id)
    return store.tell(claim(store) if job.state == "queued" else job, **changes)


def test_a_job_is_shown_with_its_counts(api: TestClient, store: JobStore, job: Job) -> None:
    advance(store, job.id, state="running", progress=JobProgress(stage="embed", total=10, done=4, failed=1))
    body = api.get(f"/v1/jobs/{job.id}").json()
    assert (body["state"], body["gallery"], body["request"]) == ("running", "shoes", {"source": "photos"})
    assert {name: body["progress"][name] for name in ("total", "done", "failed", "skipped")} == {
        "total": 10,
        "done": 4,
        "failed": 1,
        "skipped": 0,
    }


def test_an_unknown_job_is_404(api: TestClient, store: JobStore) -> None:
    for answer in (
        api.get("/v1/jobs/none"),
        api.delete("/v1/jobs/none"),
        api.get("/v1/jobs/none/events"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:vicinal:problem:job-not-found")


def test_failures_are_read_by_page(api: TestClient, store: JobStore, job: Job) -> None:
    path = f"/v1/jobs/{job.id}/failures"
    assert api.get(path).json() == {"failures": [], "next": None, "n_kept": 0}
    kept = [{"id": f"{i}", "path": f"{i}.jpg", "reason": "no image"} for i in range(25)]
    store.keep_list(job.id, "failures", kept)
    first = api.get(path, params={"size": 20}).json()
    assert ([one["id"] for one in first["failures"]], first["next"], first["n_kept"]) == (
        [f"{i}" for i in range(20)],
        20,
        25,
    )
    last = api.get(path, params={"after": 20, "size": 20}).json()
    assert ([one["path"] for one in last["failures"]], last["next"]) == (
        [f"{i}.jpg" for i in range(20, 25)],
        None,
    )
    assert api.get("/v1/jobs/none/failures").status_code == 404


def test_the_log_of_a_job_is_read(api: TestClient, store: JobStore, job: Job) -> None:
    assert api.get(f"/v1/jobs/{job.id}/log").json() == {"lines": []}
    log = JobLog(store, job.id)
    log.add("embed")
    log.add("'/data/a.jpg' is no image", "warning")
    log.keep()
    lines = api.get(f"/v1/jobs/{job.id}/log").json()["lines"]
    assert [(one["level"], one["text"]) for one in lines] == [
        ("info", "embed"),
        ("warning", "'/data/a.jpg' is no image"),
    ]


def test_jobs_are_listed_by_gallery_and_state(api: TestClient, store: JobStore, job: Job) -> None:
    store.tell(claim(store), progress=JobProgress())
    boots = store.create(new_job("steps", "boots", {}))
    store.finish(claim(store), state="succeeded")

    def listed(query: str) -> list[str]:
        return [one["id"] for one in api.get(f"/v1/jobs?{query}").json()["jobs"]]

    assert listed("") == [boots.id, job.id]
    assert listed("gallery=shoes") == [job.id]
    assert listed("state=succeeded") == [boots.id]
    assert listed("size=1") == [boots.id]


def test_what_cannot_be_resumed_says_why(api: TestClient, store: JobStore, job: Job) -> None:
    store.cancel(job.id)
    answer = api.post(f"/v1/jobs/{job.id}/resume")
    assert (answer.status_code, "cannot be resumed" in answer.json()["detail"]) == (422, True)
    assert api.post("/v1/jobs/none/resume").status_code == 404


def test_a_running_job_is_asked_to_stop(api: TestClient, store: JobStore, job: Job) -> None:
    advance(store, job.id)
    body = api.delete(f"/v1/jobs/{job.id}").json()
    assert (body["state"], body["cancel_requested"]) == ("running", True)
    assert store.get(job.id).cancel_requested


def heard(stream: AsyncIterator[bytes], *between: Callable[[], object]) -> list[Event]:
    """Events of a stream; before each but the first, something happens."""

    async def run() -> list[Event]:
        found = [await anext(stream)]
        for one in between:
            one()
            found.append(await anext(stream))
        return found + [event async for event in stream]

    return list(parsed(iter(b"".join(asyncio.run(run())).decode().splitlines())))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a job is looked up again at once."""
    monkeypatch.setattr(events, "_POLL_SECONDS", 0.0)


def test_events_tell_every_change_until_the_end(store: JobStore, job: Job, at_once: None) -> None:
    seen = heard(
        events.job_events(store, job, stopping=threading.Event()),
        lambda: advance(store, job.id, state="running", progress=JobProgress(done=4)),
        lambda: store.finish(store.get(job.id), state="succeeded"),
    )
    assert [one["event"] for one in seen] == ["progress", "progress", "end"]
    assert [one["id"] for one in seen] == ["1", "3", "4"]
    assert [json.loads(one["data"])["state"] for one in seen] == ["queued", "running", "succeeded"]
    # Who comes back gets what is new.
    again = events.job_events(store, store.get(job.id), stopping=threading.Event(), after=3)
    assert [one["id"] for one in heard(again)] == ["4"]


def test_a_stream_ends_with_its_server_and_with_the_right_to_hear(
    store: JobStore, job: Job, at_once: None
) -> None:
    stopping, rights = threading.Event(), [True]
    by_server = events.job_events(store, job, stopping=stopping)
    by_right = events.job_events(store, job, stopping=threading.Event(), may_hear=lambda: rights[0])

    async def run() -> list[bytes]:
        await anext(by_server), await anext(by_right)
        stopping.set()
        rights[0] = False
        advance(store, job.id, state="running")
        return [one async for one in by_server] + [one async for one in by_right]

    assert asyncio.run(run()) == []


def test_a_silent_stream_is_kept_alive(
    store: JobStore, job: Job, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_KEEP_ALIVE_SECONDS", 0.0)
    stream = events.job_events(store, job, stopping=threading.Event())

    async def run() -> bytes:
        await anext(stream)
        return await anext(stream)

    assert asyncio.run(run()).startswith(b": ping")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["revoked", "over"])
def test_a_key_that_is_none_any_more_hears_nothing_more(
    url: str, app: FastAPI, store: JobStore, job: Job, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    keys = state_of(app).keyring.store
    _, key = keys.create("mine", ["admin"], expires_at=datetime.now(UTC) + timedelta(hours=1))
    with following(url, job, key=key) as seen:
        assert next(seen)["event"] == "progress"
        if end == "revoked":
            keys.revoke("mine")
        else:
            monkeypatch.setattr(KeyRecord, "is_expired", True)
        advance(store, job.id, state="running")
        assert list(seen) == []
