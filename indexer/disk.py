"""Disk: files that are replaced in one step and outlive a crash, locks, and folders for what is half made."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import random
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vicinal.indexer.errors import GalleryBusyError, StorageError

_POLL_SECONDS = 0.01
_LEFTOVER_SECONDS = 24 * 3600


@contextmanager
def storing(what: object) -> Iterator[None]:
    """Say in one line what could not be written when the disk refuses."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror or error}") from error


@contextmanager
def hold_file(path: Path, busy: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which ends with the process; threads exclude each other as processes do."""
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
    """Make a folder and those above it where they are not there; nobody else looks into what is made."""
    with storing(f"'{path}'"):
        # What is between is made by `parents` for everybody.
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def making_in(folder: Path) -> Iterator[None]:
    """Keep what is being made in a folder, in folders whose names end in `.partial`, from being removed."""
    with storing(f"'{folder}'"):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """Folder for what is moved into place in one step, then removed; those of killed processes go first."""
    remove_half_made(beside)
    # Names of their own: two processes may make the same thing at the same time.
    folder = beside / f".{secrets.token_hex(4)}.partial"
    with making_in(beside):
        with storing(f"'{folder}'"):
            folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_half_made(folder: Path) -> None:
    """Remove what killed processes left half made, or half deleted, in a folder, unless anybody makes
    something there; files, and where the system holds no locks, on a disk of the network, also folders, only
    when they are a day old.
    """
    if not folder.is_dir():
        return
    descriptor, youngest = os.open(folder, os.O_RDONLY), math.inf
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            youngest = time.time() - _LEFTOVER_SECONDS
        for left in (*folder.glob("*.partial"), *folder.glob(".*.deleted")):
            # Another process may be removing the same ones.
            with suppress(FileNotFoundError):
                if left.is_dir() and not left.is_symlink() and left.stat().st_mtime < youngest:
                    shutil.rmtree(left, ignore_errors=True)
                elif left.lstat().st_mtime < time.time() - _LEFTOVER_SECONDS and not left.is_dir():
                    left.unlink()
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a small file; any crash leaves the old or the new one, one of the machine only if `durable`."""
    staging = path.with_name(path.name + ".partial")
    with storing(f"'{path}'"):
        with staging.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        staging.replace(path)
        if durable:
            sync_path(path.parent)


def write_ahead(file: sqlite3.Connection, *, patience: float) -> None:
    """Let a file of SQLite have a write-ahead log, within some seconds. Who switches a new file to it needs
    it alone, and SQLite does not wait for that.
    """
    until = time.monotonic() + patience
    while True:
        try:
            file.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            # Not in step with others that try.
            time.sleep(random.uniform(0.001, _POLL_SECONDS))


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def paths_below(folder: Path, pattern: str = "*") -> list[Path]:
    """Paths below a folder that match; none is missed while others make, rename and remove folders."""
    while True:
        try:
            return list(folder.rglob(pattern))
        except FileNotFoundError:
            # A folder went before it was read: it may be there by another name, which was passed already.
            continue


def files_below(folder: str, place: str) -> Iterator[str]:
    """Files below a folder, which stands for `place` in what is given: of a table there are thousands."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(entry.path, f"{place}/{entry.name}")
        elif entry.is_file(follow_symlinks=False):
            yield f"{place}/{entry.name}"
