"""Events of a job, as a stream that ends with the job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from vicinal.service.errors import JobNotFoundError, JobsUnavailableError
from vicinal.service.jobs.records import Job
from vicinal.service.jobs.store import JobStore

_POLL_SECONDS = 0.5
# Proxies close connections that are silent for a minute, some earlier.
_KEEP_ALIVE_SECONDS = 15.0


async def job_events(
    store: JobStore,
    job: Job,
    *,
    stopping: threading.Event,
    after: int = 0,
    may_hear: Callable[[], bool] = lambda: True,
    shown: Callable[[Job], Job] = lambda job: job,
) -> AsyncIterator[bytes]:
    """State of a job with every change, whole, as server-sent events `progress` and `end`, its revision the
    id. `may_hear` is asked before each; `shown` makes what the client may see.
    """
    current: Job | None = job
    sent_at = time.monotonic()
    while current is not None and not stopping.is_set():
        if current.revision > after:
            after, sent_at = current.revision, time.monotonic()
            yield _event(shown(current))
        if current.is_final:
            return
        if time.monotonic() - sent_at >= _KEEP_ALIVE_SECONDS:
            sent_at = time.monotonic()
            yield KEEPALIVE_COMMENT
        await asyncio.sleep(_POLL_SECONDS)
        if not await run_in_threadpool(may_hear):
            return
        current = await run_in_threadpool(_current, store, current)


def _current(store: JobStore, job: Job) -> Job | None:
    try:
        return store.get(job.id)
    except JobsUnavailableError:
        # The client keeps waiting, and gets the state when the store is back.
        return job
    except JobNotFoundError:
        return None


def _event(job: Job) -> bytes:
    name = "end" if job.is_final else "progress"
    return format_sse_event(event=name, data_str=job.model_dump_json(), id=str(job.revision))
