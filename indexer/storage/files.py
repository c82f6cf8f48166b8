"""Files that outlive a crash: replaced in one step, and on the disk itself before anyone is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.indexer.errors import StorageError

__all__ = ["storing", "sync_path", "write_atomically"]


@contextmanager
def storing(what: object) -> Iterator[None]:
    """Say in one line what could not be written when the disk refuses.

    Args:
        what: What is being written, for the message.

    Raises:
        StorageError: It is full, read-only or broken.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror or error}") from error


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a small file so that after any crash it is the old one or the new one.

    Raises:
        StorageError: The disk refuses; the old one stays.
    """
    with storing(f"'{path}'"):
        _replace(path, content)


def _replace(path: Path, content: str | bytes) -> None:
    staging = path.with_name(path.name + ".partial")
    with staging.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
    sync_path(path.parent)
