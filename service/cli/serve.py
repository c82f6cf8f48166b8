"""`vicinal serve`: the HTTP server."""

from __future__ import annotations

from typing import Annotated

import typer
import uvicorn

from service.app import create_app
from service.cli.console import errors
from service.cli.options import BundleOption, DataDirOption, load_settings
from service.security import check_exposure

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
    if not settings.api_keys:
        errors.print(f"No API keys are set: listening on {settings.host} only.")
    app = create_app(settings)
    embedder = app.state.galleries.embedder
    errors.print(
        f"Bundle {embedder.bundle.name} on {embedder.provider}, galleries in {settings.galleries_path}"
    )
    uvicorn.run(app, host=settings.host, port=settings.port, log_level="info", access_log=False)
