"""`vicinal serve`, `worker`, `openapi` and `doctor`: the server, its jobs, and what they need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from socket import socket
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from vicinal.service.cli.console import errors, print_json, print_table, say
from vicinal.service.cli.options import Home, JsonOption, end_by
from vicinal.service.words import search_words

if TYPE_CHECKING:
    from vicinal.service.doctor import Finding
    from vicinal.service.settings import Settings

_STYLES = {"ok": "green", "absent": "dim", "warning": "yellow", "failed": "red"}


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback without API keys.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that answer.")] = None,
    *,
    home: Home,
) -> None:
    """Answer searches over HTTP."""
    from vicinal.indexer.gallery import read_ahead

    settings = home.settings(host=host, port=port, workers=workers)
    # The disk reads while the rest is imported.
    read_ahead(settings.galleries_path)

    from vicinal.service.http.serving.server import listen
    from vicinal.service.keys import check_exposure
    from vicinal.service.observability.logs import configure_logs

    configure_logs(settings.log_level, settings.log_format)
    keyring = check_exposure(settings)
    with listen(settings.host, settings.port) as listener:
        if not keyring.is_asked_for:
            say(f"No API keys are set: listening on {settings.host} only.", to=errors)
        address = f"http://{settings.host}:{listener.getsockname()[1]}"
        if settings.workers == 1:
            _serve_here(settings, listener, address)
        else:
            _serve_in_processes(settings, listener, address)


def _serve_here(settings: Settings, listener: socket, address: str) -> None:
    from vicinal.service.http.app import create_app
    from vicinal.service.http.serving.processes import jobs_beside
    from vicinal.service.http.serving.server import serve_until_stopped
    from vicinal.service.http.state import state_of

    app = create_app(settings.model_copy(update={"run_jobs": False}))
    served = state_of(app).galleries.bundles.own_if_open
    made_by = "Ready embeddings, no bundle open"
    if served is not None:
        made_by = f"Bundle {served.bundle.name} on {served.embedder.provider}"
    say(f"{made_by}, galleries in {settings.galleries_path}", to=errors)
    if served is not None:
        say(f"Searches: {search_words(served.pipeline, served.bundle)}", to=errors)
    say(f"Serving {address}, API at /docs", to=errors)
    with jobs_beside(settings) if settings.run_jobs else nullcontext():
        serve_until_stopped(app, listener)


def _serve_in_processes(settings: Settings, listener: socket, address: str) -> None:
    from vicinal.service.http.serving.processes import serve_in_processes

    say(f"{settings.workers} processes, galleries in {settings.galleries_path}", to=errors)
    say(f"Serving {address}, API at /docs", to=errors)
    serve_in_processes(settings, listener)


def worker(home: Home, threads: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1) -> None:
    """Work on jobs until stopped; one under way is left to the next worker after its batch."""
    from vicinal.service.observability.logs import configure_logs
    from vicinal.service.surfaces.jobs import work_until_stopped

    def say_so(name: str, place: str) -> None:
        say(f"Worker {name} takes jobs from {place}. Stop with Ctrl-C.", to=errors)

    settings = home.settings()
    configure_logs(settings.log_level, settings.log_format)
    work_until_stopped(settings, threads=threads, on_start=say_so)
    say("Stopped after the batch under way.", to=errors)


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API."""
    from vicinal.service.http.app import create_app
    from vicinal.service.settings import Settings

    print_json(create_app(Settings()).openapi())


def doctor(home: Home, json_output: JsonOption = False) -> None:
    """Try what an installation needs: packages, GPUs, network, disk, galleries; fails if one does."""
    from vicinal.service.cli.options import load_settings
    from vicinal.service.doctor import examine

    print_findings(list(examine(load_settings(**dict(home)))), json_output=json_output)


def print_findings(findings: Sequence[Finding], *, json_output: bool) -> None:
    """Print what was found; ends with status 1 where something failed."""
    if json_output:
        print_json(findings)
    else:
        table = Table("", "", "", show_header=False, box=None)
        for one in findings:
            table.add_row(Text(one.state, style=_STYLES[one.state]), one.name, one.says)
        print_table(table)
    end_by(any(one.state == "failed" for one in findings))
