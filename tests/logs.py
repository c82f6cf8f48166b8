"""What a module has logged while a test ran."""

from __future__ import annotations

import logging

import pytest


def said_by(caplog: pytest.LogCaptureFixture, name: str, level: int = logging.WARNING) -> list[str]:
    """Messages of the loggers at or below a name: threads of earlier tests may speak of other things."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= level and f"{record.name}.".startswith(f"{name}.")
    ]
