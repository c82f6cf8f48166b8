"""Waiting for what another thread or process does, and time that a test moves on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient

# Long enough for a busy machine: what comes true ends the wait at once.
SECONDS = 300.0
_FINAL = ("succeeded", "failed", "cancelled")


def wait_until(is_true: Callable[[], object], *, every: float = 0.02) -> None:
    """Wait until something is true.

    Raises:
        TimeoutError: It did not come true.
    """
    deadline = time.monotonic() + SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come true")
        time.sleep(every)


def do_jobs(app: FastAPI) -> None:
    """Do at once, in this thread, the jobs of an application that wait for a worker."""
    # What waits for a process alone needs none of it.
    from vicinal.service.http.state import state_of
    from vicinal.service.jobs.worker import JobWorker

    state = state_of(app)
    worker = JobWorker(state.jobs, state.kinds, heartbeat_seconds=SECONDS)
    while worker.take():
        pass


def wait_for_job(client: TestClient | httpx.Client, accepted: httpx.Response) -> dict[str, Any]:
    """The job that an answer has accepted, when it is over; a client in this process does it itself.

    Raises:
        TimeoutError: It is not over yet.
    """
    assert accepted.status_code == 202, accepted.text
    url = f"/v1/jobs/{accepted.json()['id']}"
    assert accepted.headers["Location"] == url
    if isinstance(client, TestClient):
        do_jobs(client.app)
    job: dict[str, Any] = {}

    def is_over() -> bool:
        job.update(client.get(url).json())
        return job["state"] in _FINAL

    wait_until(is_over, every=0.05)
    return job


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
