"""`vicinal openapi`: the HTTP API as an OpenAPI document."""

from __future__ import annotations

from vicinal.service.cli.console import print_json
from vicinal.service.http.app import create_app
from vicinal.service.settings import Settings

__all__ = ["openapi"]


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API."""
    print_json(create_app(Settings()).openapi())
