"""Remote files: images behind an address, on the web or in a bucket."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from pyarrow import fs

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources.web import WebAccess, WebClient
from vicinal.models.decoding import DecodeLimits, read_encoded
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

__all__ = ["FileReader", "RemoteFile", "file_at", "is_address", "list_bucket"]

_WEB = ("http", "https")
_BUCKETS = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5, 30, 3


@dataclass(frozen=True)
class RemoteFile:
    """A file behind an address.

    Attributes:
        address: Such as `https://shop.example/1.jpg` or `s3://bucket/photos/1.jpg`.
        size: Bytes, where a listing said so.
        modified_ns: Nanoseconds since 1970 when it was written, where a listing said so.
    """

    address: str
    size: int | None = None
    modified_ns: int | None = None

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        """What stands before `://`, in small letters."""
        return self.address.partition("://")[0].lower()

    @property
    def is_on_web(self) -> bool:
        """Whether it is read by http or https."""
        return self.scheme in _WEB


class FileReader:
    """Reads images, from the disk or behind an address; safe for several threads.

    Args:
        access: What may be read of the web.
    """

    def __init__(self, access: WebAccess | None = None) -> None:
        self._web = WebClient(access)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._web.__exit__(kind, error, trace)

    def read(self, file: Path | RemoteFile, limits: DecodeLimits) -> bytes:
        """The bytes of an image; of one that is too large no more than the limits allow are read.

        Raises:
            DownloadError: It cannot be read.
            ImageTooLargeError: It has more bytes than the limits allow.
            NotAnImageError: It is empty.
            OSError: A file on the disk cannot be read.
        """
        if isinstance(file, Path):
            return read_encoded(file, limits)
        return self._web.read(file.address, limits) if file.is_on_web else _read_object(file, limits)


def is_address(text: str) -> bool:
    """Whether a text is an address rather than the name of a file."""
    return _ADDRESS.match(text) is not None


def file_at(place: str, folder: Path) -> Path | RemoteFile:
    """A file by its address, or by its path.

    Args:
        place: Address or path.
        folder: Where relative paths begin.

    Raises:
        SourceError: Addresses of this kind are not read.
    """
    if not is_address(place):
        return folder / place
    file = RemoteFile(place)
    if file.scheme not in (*_WEB, *_BUCKETS):
        known = ", ".join(f"{one}://" for one in (*_WEB, *_BUCKETS))
        raise SourceError(f"'{place}' is none of the addresses that are read, {known}")
    return file


def list_bucket(address: str) -> Iterator[tuple[str, RemoteFile]]:
    """All files below an address, each with its path below.

    Args:
        address: `s3://bucket/folder`, `gs://…` or `az://container/folder`.

    Raises:
        SourceError: It is no bucket, or cannot be listed.
    """
    place = RemoteFile(address.rstrip("/"))
    if place.scheme not in _BUCKETS:
        raise SourceError(
            f"'{address}' cannot be listed: give a bucket ({', '.join(f'{one}://' for one in _BUCKETS)}), or a "
            "manifest with an address a row"
        )
    try:
        system, path = _system_of(place)
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise SourceError(f"'{address}' cannot be listed: {_first_line(error)}") from error
    for one in found:
        if one.type == fs.FileType.File:
            inside = one.path.removeprefix(f"{path}/")
            yield inside, RemoteFile(f"{place}/{inside}", one.size, one.mtime_ns)


def _read_object(file: RemoteFile, limits: DecodeLimits) -> bytes:
    # Of a file that is read to its end the size says nothing new.
    if file.size is not None and file.size > limits.max_bytes:
        raise _too_large(limits)
    try:
        system, path = _system_of(file)
        with system.open_input_stream(path) as stream:
            encoded = bytes(stream.read(limits.max_bytes + 1))
    except OSError as error:
        raise DownloadError(f"'{file}' cannot be read: {_first_line(error)}") from error
    if len(encoded) > limits.max_bytes:
        raise _too_large(limits)
    if not encoded:
        raise NotAnImageError("the file is empty")
    return encoded


def _too_large(limits: DecodeLimits) -> ImageTooLargeError:
    return ImageTooLargeError(f"more than {limits.max_bytes:,} bytes, the most that are accepted")


def _first_line(error: OSError) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _system_of(file: RemoteFile) -> tuple[fs.FileSystem, str]:
    """What reads the bucket of a file, and the file's path there."""
    path = file.address.partition("://")[2]
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return _open_bucket(file.scheme, path.partition("/")[0], endpoint), path


@cache
def _open_bucket(scheme: str, bucket: str, endpoint: str | None) -> fs.FileSystem:
    if scheme == "s3":
        return fs.S3FileSystem(
            region=None if endpoint else fs.resolve_s3_region(bucket),
            endpoint_override=endpoint,
            scheme="http" if endpoint and endpoint.startswith("http://") else "https",
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        )
    from datetime import timedelta

    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=_REQUEST_SECONDS))
    account = os.environ.get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise OSError("AZURE_STORAGE_ACCOUNT does not name the account")
    return fs.AzureFileSystem(account, os.environ.get("AZURE_STORAGE_KEY"))
