"""`vicinal serve`: the HTTP server."""

from __future__ import annotations

from typing import Annotated

import typer

from vicinal.service.cli.console import errors
from vicinal.service.cli.options import BundleOption, DataDirOption, load_settings
from vicinal.service.http.app import create_app
from vicinal.service.http.security import check_exposure
from vicinal.service.http.server import listen, serve_until_stopped
from vicinal.service.http.state import state_of

__all__ = ["serve"]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback without API keys.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
) -> None:
    """Answer searches over HTTP."""
    settings = load_settings(host=host, port=port, data_dir=data_dir, bundle=bundle)
    check_exposure(settings)
    with listen(settings.host, settings.port) as listener:
        app = create_app(settings)
        embedder = state_of(app).galleries.own.embedder
        if not settings.api_keys:
            errors.print(f"No API keys are set: listening on {settings.host} only.", soft_wrap=True)
        errors.print(
            f"Bundle {embedder.bundle.name} on {embedder.provider}, galleries in {settings.galleries_path}",
            soft_wrap=True,
        )
        errors.print(
            f"Serving http://{settings.host}:{listener.getsockname()[1]}, API at /docs", soft_wrap=True
        )
        serve_until_stopped(app, listener)
