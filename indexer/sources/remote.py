"""Remote files: images behind an address, on the web or in a bucket."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyarrow import fs

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources.archives import FileElsewhere, FileStat, TarMember
from vicinal.indexer.sources.datasets import DatasetImage
from vicinal.indexer.sources.web import PUBLIC, WebAccess, WebClient, require_within
from vicinal.models.decoding import DecodeLimits, read_encoded
from vicinal.models.errors import NotAnImageError
from vicinal.models.hub import HUB_SCHEME

_DATABASES = ("postgres://", "postgresql://", "milvus://")
_WEB = ("http", "https")
_BUCKETS = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HERE = Path()
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5, 30, 3


@dataclass(frozen=True)
class RemoteFile(FileElsewhere):
    """A file behind an address."""

    address: str  # Such as `https://shop.example/1.jpg` or `s3://bucket/photos/1.jpg`
    access: WebAccess = PUBLIC
    listed: FileStat | None = None  # What a listing said of it; None where it stands in none
    container = None

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        """Scheme before `://`, in small letters."""
        return self.address.partition("://")[0].lower()

    @property
    def is_on_web(self) -> bool:
        """Tell whether it is read by http or https."""
        return self.scheme in _WEB

    def stat(self) -> FileStat:
        """Facts that a listing said of it."""
        if self.listed is None:
            raise DownloadError(f"nobody listed '{self}'")
        return self.listed

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes."""
        return _client(self.access).read(self.address, limits) if self.is_on_web else _object(self, limits)


ImageFile = Path | FileElsewhere
# Says why a file must not be read, or None when it may.
Refuse = Callable[[ImageFile], str | None]


def refuse_none(_: ImageFile) -> None:
    """Let every file be read."""


def read_file(file: ImageFile, limits: DecodeLimits) -> bytes:
    """Bytes of an image, from the disk or behind an address, that are not more than the limits allow."""
    return read_encoded(file, limits) if isinstance(file, Path) else file.read(limits)


def is_address(text: str) -> bool:
    """Tell whether a text is an address rather than the name of a file."""
    return _ADDRESS.match(text) is not None or is_on_hub(text)


def is_on_hub(text: str) -> bool:
    """Tell whether a text is meant as the address of a data set of the hub of Hugging Face."""
    return text.startswith(HUB_SCHEME)


def is_table_address(place: object) -> bool:
    """Tell whether a place is the address of a table of a database; see `engine_tables`."""
    return isinstance(place, str) and place.lower().startswith(_DATABASES)


def place_of(text: str) -> Path | str:
    """Place that a text names: a file or folder, or an address, which stays as it is written."""
    return text if is_address(text) else Path(text)


def file_at(place: str, access: WebAccess, folder: Path = _HERE) -> ImageFile:
    """A file by its address, or by its path, relative ones from `folder`."""
    if "\0" in place:
        raise SourceError("no file has a name with the character NUL")
    if not is_address(place):
        return folder / place
    file = RemoteFile(place, access)
    if file.scheme == "tar":
        return TarMember.at(place)
    if file.scheme == "dataset":
        return DatasetImage.at(place)
    if file.scheme not in (*_WEB, *_BUCKETS):
        known = ", ".join(f"{one}://" for one in (*_WEB, *_BUCKETS))
        raise SourceError(f"'{place}' is none of the addresses that are read, {known}")
    return file


def file_of_row(place: str, access: WebAccess, folder: Path, table: Path) -> tuple[ImageFile, str | None]:
    """File that a row names, see `file_at`, or the table and why; backslashes may stand between folders."""
    if not place:
        return table, "its row has an empty path"
    try:
        file = file_at(place, access, folder)
    except SourceError as error:
        return table, str(error)
    # Path.exists raises for names that are too long.
    if "\\" in place and isinstance(file, Path) and not os.path.exists(file):  # noqa: PTH110
        return folder / place.replace("\\", "/"), None
    return file, None


def list_bucket(address: str, access: WebAccess) -> Iterator[tuple[str, RemoteFile]]:
    """All files below `s3://bucket/folder`, `gs://…` or `az://container/folder`, each with its path below."""
    place = RemoteFile(address.rstrip("/"), access)
    if place.scheme not in _BUCKETS:
        raise SourceError(
            f"'{address}' cannot be listed: give a bucket ({', '.join(f'{one}://' for one in _BUCKETS)}), or "
            "a manifest with an address a row"
        )
    try:
        system, path = _system_of(place)
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise SourceError(f"'{address}' cannot be listed: {_first_line(error)}") from error
    for one in found:
        if one.type == fs.FileType.File:
            inside = one.path.removeprefix(f"{path}/")
            yield inside, RemoteFile(f"{place}/{inside}", access, FileStat(one.size, one.mtime_ns))


@cache
def _client(access: WebAccess) -> WebClient:
    # One for all reads: connections are kept for the next file of the same server.
    return WebClient(access)


def _object(file: RemoteFile, limits: DecodeLimits) -> bytes:
    require_within(file.listed.st_size if file.listed else 0, limits)
    try:
        system, path = _system_of(file)
        with system.open_input_stream(path) as stream:
            encoded = bytes(stream.read(limits.max_bytes + 1))
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(f"'{file}' cannot be read: {_first_line(error)}") from error
    require_within(len(encoded), limits)
    if not encoded:
        raise NotAnImageError("the file is empty")
    return encoded


def _first_line(error: OSError) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _system_of(file: RemoteFile) -> tuple[fs.FileSystem, str]:
    """File system that reads the bucket of a file, and the file's path there."""
    if file.access.public_only:
        raise DownloadError(f"'{file}' must not be read: only addresses of http and https may")
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
    if not hasattr(fs, "AzureFileSystem"):
        raise OSError("this pyarrow does not read Azure: install a newer one")
    return fs.AzureFileSystem(account, os.environ.get("AZURE_STORAGE_KEY"))
