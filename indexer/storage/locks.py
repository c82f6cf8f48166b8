"""Locks between processes: files that one of them holds at a time; a lock ends with its process."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.storage.files import storing

__all__ = ["file_lock"]

_POLL_SECONDS = 0.01


@contextmanager
def file_lock(path: Path, busy: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file; threads of one process exclude each other as processes do.

    Args:
        path: The file; its folder exists.
        busy: What to say when another one holds it.
        patience: Seconds to wait for it.

    Raises:
        GalleryBusyError: Another one still holds it.
        StorageError: The file cannot be opened for writing.
    """
    deadline = time.monotonic() + patience
    with storing(f"lock file '{path}'"):
        opened = path.open("a")
    with opened as stream:
        while not _taken(stream.fileno()):
            if time.monotonic() >= deadline:
                raise GalleryBusyError(busy)
            time.sleep(_POLL_SECONDS)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
