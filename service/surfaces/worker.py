"""Worker: a process that works on jobs until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs import JobQueue, JobStore, JobWorker
from vicinal.service.process import prepare_process
from vicinal.service.settings import Settings
from vicinal.service.surfaces.job_kinds import job_kinds

_LOOK_SECONDS = 0.5


def work_until_stopped(
    settings: Settings, *, threads: int = 1, on_start: Callable[[str, str], None] | None = None
) -> None:
    """Work on jobs until Ctrl-C or a termination signal; one under way is left to another worker."""
    prepare_process()
    link = settings.open_link()
    jobs = JobStore(JobQueue(settings.jobs_path, link))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    kinds = job_kinds(ServedBundles(settings, link), link)
    with JobWorker(jobs, kinds, threads=threads, heartbeat_seconds=settings.job_heartbeat_seconds) as started:
        if on_start is not None:
            on_start(started.name, "Redis" if link is not None else str(settings.jobs_path))
        # The system may hand a signal to any thread, and only this one answers it, once it runs.
        while not stop.wait(_LOOK_SECONDS):
            pass
    jobs.queue.close()
