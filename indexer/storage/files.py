"""Files that outlive a crash: replaced in one step, on the disk itself before anyone is told; seals; locks.

Every record and pointer of a gallery is a small JSON file with a seal of its own. One changed byte of it
would move a threshold, or what is searched, without a word. So nobody gets the content of one whose seal is
broken, and whoever reads it says how to come by another.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from filelock import FileLock, Timeout

from vicinal.indexer.errors import GalleryBusyError, GalleryError, StorageError
from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed

_POLL_SECONDS = 0.01
# Written within milliseconds.
_PATIENCE = 30.0
_LEFTOVER_SECONDS = 24 * 3600
_REMEDY = "bring it back from a backup, or remove it and calibrate again"
# What was replaced so recently could be replaced again without another time of change.
_SETTLED_NANOSECONDS = 2 * 10**9
# Of a job that is not over, or of Lance, which seals its own.
_PASSED_OVER = {"staging", "uploads", "data", "_versions", "_transactions", "_deletions", "_indices"}
Parsed = TypeVar("Parsed")


@contextmanager
def storing(what: object) -> Iterator[None]:
    """Say in one line what could not be written when the disk refuses."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror or error}") from error


@contextmanager
def file_lock(path: Path, busy: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which ends with the process; threads exclude each other as processes do.

    Args:
        busy: What to say when another one holds it.
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
    """Make a folder and those above it, where they are not there; nobody else looks into what is made here.

    Raises:
        StorageError: The disk refuses.
    """
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


def remove_half_made(folder: Path) -> None:
    """Remove the folders that killed processes left half made, or half deleted, in a folder.

    While anybody makes something there, nothing is: the system lets go of what a dead process held. Where it
    holds nothing, on a disk of the network, what is a day old goes.
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
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a small file so that after any crash it is the old one or the new one.

    Args:
        durable: Bring it to the disk itself before this returns; otherwise a crash of the machine may leave
            it old or cut.
    """
    with storing(f"'{path}'"):
        _replace(path, content, durable=durable)


def write_sealed(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a small file by a JSON object with its seal; after any crash it is the old one or the new one.

    Args:
        path: The file.
        text: The object.
        durable: Bring it to the disk itself before this returns.

    Raises:
        StorageError: The disk refuses; the old one stays.
    """
    write_atomically(path, sealed(text), durable=durable)


def read_sealed(path: Path) -> bytes:
    """The JSON object in a sealed file."""
    return unsealed(path.read_bytes())


def read_sealed_or_refuse(path: Path, remedy: str) -> bytes:
    """The same for what only a gallery's own code reads.

    Args:
        remedy: What to do when it is damaged.
    """
    try:
        return read_sealed(path)
    except FileNotFoundError:
        raise
    except (OSError, BrokenSealError) as error:
        raise GalleryError(f"'{path}' is damaged: {remedy}") from error


class SealedFile(Generic[Parsed]):
    """A sealed file that every search asks for; it is read again only after it was replaced.

    Args:
        path: The file.
        parse: Makes a value of the JSON object in it; `ValueError` or `LookupError` where it cannot.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Parsed]) -> None:
        self.path = path
        self._parse = parse
        self._known: tuple[tuple[int, ...] | None, bytes, Parsed] | None = None

    def read(self) -> Parsed:
        """What the file says now."""
        found = self.path.stat()
        # Replaced, it is another file; a number that is free again comes with another time.
        identity = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known
        if known is not None and known[0] == identity:
            return known[2]
        stored = self.path.read_bytes()
        value = known[2] if known is not None and known[1] == stored else self._understood(stored)
        is_settled = time.time_ns() - found.st_mtime_ns >= _SETTLED_NANOSECONDS
        self._known = (identity if is_settled else None), stored, value
        return value

    def _understood(self, stored: bytes) -> Parsed:
        content = unsealed(stored)
        try:
            return self._parse(content)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise BrokenSealError(f"it says something else than expected: {error}") from error


def broken_files(folder: Path) -> Iterator[Path]:
    """Sealed files below a gallery's folder that are not what was written, sorted."""
    for path in sorted(folder.rglob("*.json")):
        if _PASSED_OVER.isdisjoint(path.relative_to(folder).parts[:-1]):
            try:
                read_sealed(path)
            except FileNotFoundError:
                # Replaced or removed meanwhile.
                continue
            except (OSError, BrokenSealError):
                yield path


def identity_of(folder: Path) -> str:
    """Identity of the gallery in a folder, which is given when it is first asked for.

    It stays when the gallery is renamed, copied or taken to another machine.
    """
    path = folder / "identity.json"
    if not path.is_file():
        busy = f"'{path}' is being written by a process that hangs"
        with file_lock(folder / "active.lock", busy, patience=_PATIENCE):
            if not path.is_file():
                write_sealed(path, json.dumps({"identity": secrets.token_hex(8)}))
    return str(json.loads(read_sealed_or_refuse(path, _REMEDY))["identity"])


def _replace(path: Path, content: str | bytes, *, durable: bool) -> None:
    staging = path.with_name(path.name + ".partial")
    with staging.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    staging.replace(path)
    if durable:
        sync_path(path.parent)
