"""Shared counts: what the processes of one server count, in a folder that each writes to and all read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.service.errors import RequestError

# The name that prometheus_client gives it; it is looked at when a process imports that package.
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# Counts are mapped into memory: a full disk would end the process that writes to them.
_IN_MEMORY = "/dev/shm"
_PREFIX = "vicinal-counts-"


@contextmanager
def shared_counts() -> Iterator[Path]:
    """A folder for the counts of all processes that are started meanwhile; it is removed at the end."""
    with _new_folder() as folder:
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before


def counts_folder() -> Path | None:
    """Folder of the counts of all processes; None where this one counts alone."""
    folder = os.environ.get(_VARIABLE)
    return Path(folder) if folder else None


def _new_folder() -> tempfile.TemporaryDirectory[str]:
    with suppress(OSError):
        return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_IN_MEMORY)
    try:
        return tempfile.TemporaryDirectory(prefix=_PREFIX)
    except OSError as error:
        raise RequestError(
            f"several processes need a folder to count in: {error}; set TMPDIR to one that can be written"
        ) from error
