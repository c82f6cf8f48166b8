"""`vicinal openapi`: the HTTP API as an OpenAPI document."""

from __future__ import annotations

from service.app import create_app
from service.cli.console import print_json
from service.settings import Settings

__all__ = ["openapi"]


def openapi() -> None:
    """Print the OpenAPI document of the HTTP API."""
    print_json(create_app(Settings()).openapi())
