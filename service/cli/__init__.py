"""Command line: `vicinal COMMAND`."""

from vicinal.service.cli.main import app, main

__all__ = ["app", "main"]
