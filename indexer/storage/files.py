"""Files that outlive a crash: replaced in one step, on the disk itself before anyone is told, and locks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vicinal.indexer.errors import GalleryBusyError, StorageError

__all__ = ["file_lock", "identity_of", "make_folder", "storing", "sync_path", "write_atomically"]

_POLL_SECONDS = 0.01
# Written within milliseconds.
_PATIENCE = 30.0


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


@contextmanager
def file_lock(path: Path, busy: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which ends with the process; threads exclude each other as processes do.

    Args:
        path: The file; its folder exists.
        busy: What to say when another one holds it.
        patience: Seconds to wait for it.

    Raises:
        GalleryBusyError: Another one still holds it.
        StorageError: The file cannot be opened for writing.
    """
    # Not bound to a thread: who counts searches gives its lock back in another one.
    lock = FileLock(path, thread_local=False)
    with storing(f"lock file '{path}'"):
        try:
            lock.acquire(timeout=patience, poll_interval=_POLL_SECONDS)
        except Timeout as error:
            raise GalleryBusyError(busy) from error
    try:
        yield
    finally:
        lock.release()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there.

    Raises:
        StorageError: The disk refuses.
    """
    with storing(f"'{path}'"):
        path.mkdir(parents=True, exist_ok=True)


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


def identity_of(folder: Path) -> str:
    """Identity of the gallery in a folder, which is given when it is first asked for.

    It stays when the gallery is renamed, copied or taken to another machine.

    Raises:
        StorageError: The disk refuses.
    """
    path = folder / "identity"
    if not path.is_file():
        busy = f"'{path}' is being written by a process that hangs"
        with file_lock(folder / "active.lock", busy, patience=_PATIENCE):
            if not path.is_file():
                write_atomically(path, secrets.token_hex(8))
    return path.read_text(encoding="utf-8")


def _replace(path: Path, content: str | bytes) -> None:
    staging = path.with_name(path.name + ".partial")
    with staging.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
    sync_path(path.parent)
