"""Processes: one server in several, which share a port and the galleries, and a process for its jobs."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from vicinal.models.runtime import usable_processors
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serve_until_stopped
from vicinal.service.observability.logs import configure_logs
from vicinal.service.problem_types import ERRORS
from vicinal.service.process import ends_process
from vicinal.service.settings import Settings
from vicinal.service.surfaces.jobs import work_until_stopped

logger = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
# Exit status of a process that told why it cannot serve.
_CANNOT_START = 3
# One that ends sooner after its start than this was never good for anything.
_SOON = 10.0
_MOST_SOON = 3
_KILL_SECONDS = 15.0
# Of the process of the jobs: where both want a core, searches go first.
_NICENESS = 19
# The name that prometheus_client gives it; it is looked at when a process imports that package.
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# Counts are mapped into memory: a full disk would end the process that writes to them.
_IN_MEMORY = "/dev/shm"
_PREFIX = "vicinal-counts-"


def serve_in_processes(settings: Settings, listener: socket.socket) -> None:
    """Serve until a signal, with `settings.workers` processes and one for the jobs, replacing dead ones."""
    if settings.rate_limit and settings.redis_url is None:
        raise RequestError(
            f"rate_limit would be counted in each of {settings.workers} processes alone: set redis_url"
        )
    threads = settings.threads or max(1, usable_processors() // settings.workers)
    shared = settings.model_copy(update={"threads": threads, "run_jobs": False})
    children = [_Child("server", _serve, (shared, listener)) for _ in range(settings.workers)]
    if settings.run_jobs:
        children.append(_jobs(settings))
    # A shell hands SIGINT ignored to what it starts in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with shared_counts():
        try:
            for child in children:
                child.start()
            _keep_alive(children)
        except KeyboardInterrupt:
            return
        finally:
            # Connections that wait in it are taken by the others, and lost when it is closed by the last one.
            listener.close()
            _end(children, settings.shutdown_seconds + _KILL_SECONDS)


@contextmanager
def shared_counts() -> Iterator[Path]:
    """A folder for the counts of all processes that are started meanwhile; it is removed at the end."""
    with _new_folder() as folder:
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before


def _new_folder() -> tempfile.TemporaryDirectory[str]:
    with suppress(OSError):
        return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_IN_MEMORY)
    try:
        return tempfile.TemporaryDirectory(prefix=_PREFIX)
    except OSError as error:
        raise RequestError(
            f"several processes need a folder to count in: {error}; set TMPDIR to one that can be written"
        ) from error


@contextmanager
def jobs_beside(settings: Settings) -> Iterator[None]:
    """Work on jobs while the context lasts, in a process of their own, which does not hold searches up."""
    child, is_over = _jobs(settings), threading.Event()
    child.start()
    threading.Thread(target=_keep_one, args=(child, is_over), name="keeper of the jobs", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        _end([child], _KILL_SECONDS)


@dataclass
class _Child:
    """A process, and how to start it again."""

    name: str
    run: Callable[..., None]
    arguments: tuple[object, ...]
    process: SpawnProcess | None = None
    n_soon: int = 0
    _started: float = 0.0
    _lifeline: Connection | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process; it ends when this one does, because the other end of its pipe is closed then."""
        theirs, self._lifeline = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(
            target=_child, args=(theirs, self.run, *self.arguments), name=self.name, daemon=False
        )
        with _interrupts_later():
            self.process.start()
        self._started = time.monotonic()
        theirs.close()

    def replace(self) -> None:
        """Start a process in place of one that has ended."""
        code = None if self.process is None else self.process.exitcode
        self.n_soon = self.n_soon + 1 if time.monotonic() - self._started < _SOON else 0
        if code == _CANNOT_START or self.n_soon >= _MOST_SOON:
            raise RequestError(f"a process of the {self.name} cannot start; the reason stands above")
        if self.process is not None and os.environ.get(_VARIABLE):
            # What it has counted stays; what it was at does not.
            mark_process_dead(self.process.pid)
        logger.error("a process of the %s has ended with status %s; another one is started", self.name, code)
        self.start()


def _keep_alive(children: list[_Child]) -> None:
    while True:
        sentinels = {one.process.sentinel: one for one in children if one.process is not None}
        for sentinel in wait(list(sentinels)):
            sentinels[sentinel].replace()  # type: ignore[index]


def _jobs(settings: Settings) -> _Child:
    """The process of the jobs; half of the cores do a re-index in about the time that all do."""
    threads = settings.threads or max(1, usable_processors() // 2)
    return _Child("jobs", _work, (settings.model_copy(update={"threads": threads}),))


def _keep_one(child: _Child, is_over: threading.Event) -> None:
    while child.process is not None:
        wait([child.process.sentinel])
        if is_over.is_set():
            return
        try:
            child.replace()
        except RequestError as error:
            logger.error("%s; jobs wait until the server is started anew", error)
            return


def _end(children: list[_Child], seconds: float) -> None:
    """Ask all to end, and end those that do not."""
    running = [one.process for one in children if one.process is not None and one.process.is_alive()]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + seconds
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            logger.warning(
                "a process of the %s does not end within %.0f s, and is killed", process.name, seconds
            )
            process.kill()
            process.join()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold SIGINT back, also in processes started meanwhile, which would print where they were."""
    # Where this runs not yet, a start would run it, and that takes SIGINT again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _child(lifeline: Connection, run: Callable[..., None], *arguments: object) -> None:
    # The process that started this one ends it. What was held back is dropped.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()
    with ends_process():
        try:
            run(*arguments)
        except ERRORS as error:
            sys.stderr.write(f"vicinal: {error}\n")
            sys.exit(_CANNOT_START)


def _end_with(lifeline: Connection) -> None:
    """Ask this process to end when the one that started it has."""
    lifeline.poll(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(settings: Settings, listener: socket.socket) -> None:
    configure_logs(settings.log_level, settings.log_format)
    serve_until_stopped(create_app(settings), listener)


def _work(settings: Settings) -> None:
    with suppress(OSError):
        # A sandbox may forbid it.
        os.nice(_NICENESS)
    configure_logs(settings.log_level, settings.log_format)
    work_until_stopped(settings)
