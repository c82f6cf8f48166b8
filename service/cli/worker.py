"""`vicinal worker`: works on jobs in a process of its own."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from vicinal.service.cli.console import errors
from vicinal.service.cli.options import BundleOption, DataDirOption, load_settings
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs import JobQueue, JobStore, JobWorker
from vicinal.service.tasks.kinds import JobKinds

__all__ = ["worker"]


def worker(
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    threads: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1,
) -> None:
    """Work on jobs until stopped; one under way is left to the next worker after its batch."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    link = settings.open_link()
    jobs = JobStore(JobQueue(settings.jobs_path, link))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    kinds = JobKinds.of(ServedBundles(settings, link), link).by_name()
    with JobWorker(jobs, kinds, threads=threads, heartbeat_seconds=settings.job_heartbeat_seconds) as started:
        place = "Redis" if link is not None else settings.jobs_path
        errors.print(f"Worker {started.name} takes jobs from {place}. Stop with Ctrl-C.", soft_wrap=True)
        stop.wait()
        errors.print("Stopping after the batch under way.")
    jobs.queue.close()
