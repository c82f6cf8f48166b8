"""Stores: what holds the large files of a home, a shared folder or a bucket, which obstore reaches.

Files are objects that never change, each under a name of its own, and a mark that says which home it is. What
decides between replicas is the database alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from vicinal.indexer.disk import sync_path
from vicinal.indexer.errors import HomeError
from vicinal.models.errors import install_command

MARK = "home.json"
_SCHEMES = ("s3", "gs", "az")
# Until an answer is whole, and until no more is tried.
_TRIES, _CONNECT_SECONDS, _ANSWER_SECONDS, _GIVE_UP_SECONDS = 2, 2, 30, 20
_BLOCK = 2**20
# What one call fetches: the time for an answer is that of all of it.
_PIECE = 32 * 2**20


class Stored(NamedTuple):
    """A file of a home, and when it was written by the clock of what keeps it."""

    name: str
    modified: datetime


class HomeStore(Protocol):
    """Files by name. Each call raises `HomeError` where nobody answers, or the answer is no."""

    address: str

    def get(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""

    def fetch(self, name: str, path: Path) -> bool:
        """Write the content of a file into another; False where there is none."""

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file, in place of what is there."""

    def list(self, folder: str) -> Iterator[Stored]:
        """Files of a folder by name, ascending."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""


def open_store(address: str) -> HomeStore:
    """The store at an address: a folder, or `s3://bucket/prefix`."""
    scheme, _, rest = address.partition("://")
    if not rest:
        return FolderStore(Path(address).absolute())
    if scheme not in _SCHEMES or "@" in rest:
        raise HomeError(
            f"a home is a folder or an address such as s3://bucket/prefix, not '{address.rpartition('@')[2]}'"
        )
    return BucketStore(address)


class FolderStore:
    """A folder that all replicas see."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def get(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        with self._asked():
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                self._require_mounted(name)
                return None

    def fetch(self, name: str, path: Path) -> bool:
        """Write the content of a file into another; False where there is none."""
        with self._asked():
            try:
                source = (self.path / name).open("rb")
            except FileNotFoundError:
                self._require_mounted(name)
                return False
            with source, path.open("wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
        return True

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file, in place of what is there."""
        with self._asked(), self._written(name, content) as staged:
            staged.replace(self.path / name)

    def list(self, folder: str) -> Iterator[Stored]:
        """Files of a folder by name, ascending."""
        with self._asked():
            try:
                entries = sorted(os.scandir(self.path / folder), key=lambda one: one.name)
            except FileNotFoundError:
                self._require_mounted(folder)
                return
            for entry in entries:
                if entry.name.endswith(".partial"):
                    continue
                with suppress(FileNotFoundError):
                    modified = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                    yield Stored(f"{folder}/{entry.name}", modified)

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._asked():
            (self.path / name).unlink(missing_ok=True)

    def _require_mounted(self, name: str) -> None:
        """Refuse a folder that is not mounted: it would look like an empty home."""
        if name != MARK and not (self.path / MARK).exists():
            raise FileNotFoundError(f"there is no {MARK} in it: is it mounted?")

    @contextmanager
    def _written(self, name: str, content: bytes | Path) -> Iterator[Path]:
        folder = (self.path / name).parent
        if folder != self.path:
            folder.mkdir(exist_ok=True)
        staged = folder / f".{secrets.token_hex(8)}.partial"
        try:
            with staged.open("xb") as stream:
                if isinstance(content, bytes):
                    stream.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, stream, _BLOCK)
                stream.flush()
                os.fsync(stream.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)
            # What was renamed, too.
            sync_path(folder)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, HomeError):
                raise
            raise HomeError(f"home '{self.address}' does not answer: {error.strerror or error}") from error


class BucketStore:
    """A prefix of a bucket; keys and region come from the environment, such as `AWS_ACCESS_KEY_ID`."""

    def __init__(self, address: str) -> None:
        try:
            from obstore.store import from_url
        except ImportError as error:
            raise HomeError(f"home '{address}' needs a package: {install_command('s3')}") from error
        self.address = address
        with self._asked():
            made: Any = from_url
            options = {
                "allow_http": os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"),
                "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            }
            self._bucket = made(
                address,
                client_options={**options, "timeout": timedelta(seconds=_ANSWER_SECONDS)},
                retry_config={"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_GIVE_UP_SECONDS)},
            )

    def get(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        with self._asked():
            try:
                return bytes(self._bucket.get(name).bytes())
            except FileNotFoundError:
                return None

    def fetch(self, name: str, path: Path) -> bool:
        """Write the content of a file into another; False where there is none."""
        with self._asked():
            try:
                found = self._bucket.get(name)
            except FileNotFoundError:
                return False
            n_bytes = found.meta["size"]
            with path.open("wb") as target:
                if n_bytes <= _PIECE:
                    for piece in found.stream(min_chunk_size=_BLOCK):
                        target.write(piece)
                else:
                    for start in range(0, n_bytes, _PIECE):
                        end = min(start + _PIECE, n_bytes)
                        target.write(self._bucket.get_range(name, start=start, end=end))
        return True

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file, in place of what is there."""
        with self._asked():
            self._bucket.put(name, content)

    def list(self, folder: str) -> Iterator[Stored]:
        """Files of a folder by name, ascending."""
        with self._asked():
            for chunk in self._bucket.list(f"{folder}/"):
                for one in chunk:
                    yield Stored(one["path"], one["last_modified"])

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._asked(), suppress(FileNotFoundError):
            self._bucket.delete(name)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, HomeError):
                raise
            reason = str(error).partition("\n")[0]
            raise HomeError(f"home '{self.address}' does not answer: {reason[:300]}") from error
