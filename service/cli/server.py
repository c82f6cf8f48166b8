"""`vicinal serve`, `vicinal worker` and `vicinal openapi`: the HTTP server, its jobs and its document."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from vicinal.service.cli.console import errors, print_json, say
from vicinal.service.cli.options import BundleOption, DataDirOption, load_settings
from vicinal.service.words import search_words

__all__ = ["openapi", "serve", "worker"]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback without API keys.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
) -> None:
    """Answer searches over HTTP."""
    from vicinal.service.http.app import create_app
    from vicinal.service.http.security import check_exposure
    from vicinal.service.http.server import listen, serve_until_stopped
    from vicinal.service.http.state import state_of

    settings = load_settings(host=host, port=port, data_dir=data_dir, bundle=bundle)
    check_exposure(settings)
    with listen(settings.host, settings.port) as listener:
        app = create_app(settings)
        served = state_of(app).galleries.bundles.own_if_open
        if not settings.api_keys:
            errors.print(f"No API keys are set: listening on {settings.host} only.", soft_wrap=True)
        made_by = "Ready embeddings, no bundle open"
        if served is not None:
            made_by = f"Bundle {served.bundle.name} on {served.embedder.provider}"
        errors.print(f"{made_by}, galleries in {settings.galleries_path}", soft_wrap=True)
        if served is not None:
            say(f"Searches: {search_words(served.pipeline, served.bundle)}", to=errors)
        errors.print(
            f"Serving http://{settings.host}:{listener.getsockname()[1]}, API at /docs", soft_wrap=True
        )
        serve_until_stopped(app, listener)


def worker(
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    threads: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1,
) -> None:
    """Work on jobs until stopped; one under way is left to the next worker after its batch."""
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.jobs import JobQueue, JobStore, JobWorker
    from vicinal.service.tasks.kinds import JobKinds

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


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API."""
    from vicinal.service.http.app import create_app
    from vicinal.service.settings import Settings

    print_json(create_app(Settings()).openapi())
