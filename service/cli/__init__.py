"""Command line: `vicinal COMMAND`."""

from service.cli.main import app, main

__all__ = ["app", "main"]
