"""State of an application: all that its routes share, opened once, running while it serves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, FastAPI, Request

from vicinal.models.runtime import usable_processors
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.change_notices import ChangeNotices
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.galleries.state_metrics import GalleryStateMetrics
from vicinal.service.http.access import AuditLog, Metrics, StrangerLog
from vicinal.service.http.limits import RateLimit
from vicinal.service.http.search_queue import SearchQueue
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.state_metrics import JobStateMetrics
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.keys import Keyring
from vicinal.service.observability.traces import Traces, open_traces
from vicinal.service.operations.place import Place
from vicinal.service.redis_link import RedisLink
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import OperationJob, job_kinds


@dataclass(frozen=True)
class State:
    """State that the routes of one application share."""

    settings: Settings
    link: RedisLink | None  # None when no address is set
    galleries: OpenGalleries
    metrics: Metrics
    traces: Traces | None  # Makes spans of the requests; None where no collector is named
    jobs: JobStore
    kinds: dict[str, OperationJob]  # What jobs can do
    keyring: Keyring
    audit: AuditLog  # Notes the changes that calls make
    strangers: StrangerLog  # Notes calls that were refused for want of a key
    rate_limit: RateLimit | None  # None without a limit
    searches: SearchQueue  # Answers searches on a few threads
    stopping: threading.Event = field(default_factory=threading.Event)  # Set when the server shuts down

    @classmethod
    def of(cls, settings: Settings) -> State:
        """Open everything; nothing runs yet."""
        link = settings.open_link()
        bundles = ServedBundles(settings, link)
        bundles.prepare()
        if bundles.own_if_open is not None:
            bundles.own_if_open.embedder.warm_up()
        galleries, metrics = OpenGalleries(bundles), Metrics(bundles)

        state = cls(
            settings=settings,
            link=link,
            galleries=galleries,
            metrics=metrics,
            traces=open_traces(),
            jobs=JobStore(JobQueue(settings.jobs_path, link)),
            kinds=job_kinds(bundles, link),
            keyring=Keyring(settings),
            audit=AuditLog(settings.audit_path),
            strangers=StrangerLog(settings.audit_path.with_name("refused.jsonl")),
            rate_limit=RateLimit(settings.rate_limit, link) if settings.rate_limit else None,
            searches=SearchQueue(
                galleries,
                metrics,
                n_threads=settings.threads or usable_processors(),
                most_seconds=settings.max_wait_seconds,
            ),
        )
        registry, states = state.metrics.registry, state.metrics.states
        registry.register(bundles.lookups)
        states.register(GalleryStateMetrics(galleries))
        states.register(JobStateMetrics(state.jobs, state.kinds))
        states.register(galleries.drift)
        if link is not None:
            link.register(registry)
        return state

    def place(self, gallery: str) -> Place:
        """Place where an operation works on a gallery."""
        opened = self.galleries.gallery(gallery)
        find_matcher = partial(self.galleries.matcher, opened.name)
        return Place(self.galleries.bundles, opened, find_matcher=find_matcher)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep the galleries current, and work on jobs if the settings say so, while the context lasts."""
        settings = self.settings
        with ExitStack() as running:
            if self.traces is not None:
                running.callback(self.traces.close)
            running.callback(self.jobs.queue.close)
            running.callback(self.searches.stop)
            running.enter_context(self.galleries.drift)
            running.enter_context(
                ChangeNotices(self.galleries, self.link, poll_seconds=settings.poll_seconds)
            )
            if settings.run_jobs:
                seconds = settings.job_heartbeat_seconds
                running.enter_context(JobWorker(self.jobs, self.kinds, heartbeat_seconds=seconds))
            yield


def state_of(app: FastAPI) -> State:
    """The state of an application that `create_app` made."""
    state: State = app.state.vicinal
    return state


# A coroutine, because it would be called on another thread otherwise, which takes longer than all it does.
async def _state(request: Request) -> State:
    return state_of(request.app)


StateDependency = Annotated[State, Depends(_state)]
