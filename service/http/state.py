"""State of an application: all that its routes share, opened once, running while it serves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from starlette.types import Scope

from vicinal.models.runtime import usable_processors
from vicinal.service.answering.keeper import SearchKeeper
from vicinal.service.answering.promise_watch import PromiseWatch
from vicinal.service.database import open_database
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.home import HomeFollower, HomeMetrics, open_home
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.galleries.state_metrics import GalleryStateMetrics
from vicinal.service.http.access import AuditLog, Metrics, StrangerLog, call_of
from vicinal.service.http.limits import RateLimit
from vicinal.service.http.search_queue import SearchQueue
from vicinal.service.jobs.state_metrics import JobStateMetrics
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.keys import Keyring
from vicinal.service.operations.place import Place
from vicinal.service.process import Looks
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import job_kinds

# Between two looks at what other machines changed.
_LOOK_SECONDS = 0.5


class State:
    """State that the routes of one application share: everything is open, and nothing runs yet."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = open_database(settings)  # None where all state is in files
        self.link = settings.open_link()  # None when no address is set
        self.mirror = open_home(settings)  # None without a home
        bundles = ServedBundles(settings, self.link)
        bundles.prepare()
        if bundles.own_if_open is not None:
            bundles.own_if_open.embedder.warm_up()
        self.galleries, self.metrics = OpenGalleries(bundles), Metrics(bundles)
        self.jobs = JobStore(settings.data_dir)
        self.kinds = job_kinds(bundles)  # What jobs can do
        self.keyring = Keyring(settings)
        self.audit = AuditLog(settings.audit_path)  # Notes the changes that calls make
        # Notes calls that were refused for want of a key
        self.strangers = StrangerLog(settings.audit_path.with_name("refused.jsonl"))
        self.rate_limit = RateLimit(settings.rate_limit, self.link) if settings.rate_limit else None
        self.keeper = SearchKeeper(settings, self.metrics.record_kept)
        self.promises = PromiseWatch(self.galleries.matcher)  # Told of every answer to a search
        queue = partial(
            SearchQueue,
            self.galleries,
            self.metrics,
            self.keeper,
            n_threads=settings.threads or usable_processors(),
            most_seconds=settings.max_wait_seconds,
        )
        self.searches = queue()
        # By whether their keys are trusted: calls that may take long, which hold up no search.
        self._calls = {trusted: queue(is_beside=True) for trusted in (True, False)}
        self.probes = ThreadPoolExecutor(2, "probe")  # Threads that nothing else fills
        self.stopping = threading.Event()  # Set when the server shuts down
        self.metrics.registry.register(bundles.lookups)
        self.metrics.states.register(GalleryStateMetrics(self.galleries))
        self.metrics.states.register(JobStateMetrics(self.jobs, self.kinds))
        self.metrics.states.register(self.galleries.drift)
        if self.mirror is not None:
            self.metrics.states.register(HomeMetrics(self.mirror, self.metrics.registry))
        if self.link is not None:
            self.link.register(self.metrics.registry)

    def calls(self, scope: Scope) -> SearchQueue:
        """Line of a call that may take long; keys that may only search hold up each other, nobody else."""
        grant = call_of(scope).grant
        return self._calls[grant is None or grant.is_trusted]

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
            if self.database is not None:
                running.callback(self.database.database.close)
                running.callback(setattr, self.database, "is_followed", False)
                running.enter_context(Looks("the database", self.database.followed, _LOOK_SECONDS))
            running.callback(self.galleries.bundles.engine.close)
            # It ends after what it keeps the last of.
            running.enter_context(self.keeper)
            running.callback(self.searches.stop)
            for calls in self._calls.values():
                running.callback(calls.stop)
            running.enter_context(self.promises)
            if self.mirror is not None:
                running.enter_context(HomeFollower(self.mirror, self.galleries.refresh))
            running.enter_context(self.galleries.drift)
            running.enter_context(Looks("galleries", self.galleries.states, settings.poll_seconds))
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
