"""Remote files: images in buckets, and the rights with which sources are read."""

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
from vicinal.models.decoding import DecodeLimits, read_encoded
from vicinal.models.errors import ImageTooLargeError, NotAnImageError
from vicinal.models.hub import HUB_SCHEME

_DATABASES = ("postgres://", "postgresql://", "milvus://")
_WEB = ("http", "https")
_BUCKETS = ("s3", "gs", "az")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HERE = Path()
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5, 30, 3


@dataclass(frozen=True)
class SourceAccess:
    """Rights with which sources are read."""

    # Read no bucket, and of the hub what everybody may
    public_only: bool = True
    # Where data sets of the hub of Hugging Face are kept; in the cache of its own programs when None
    hub: Path | None = None


# For sources that strangers name, and for those that whoever runs the program names.
PUBLIC = SourceAccess()
ANYWHERE = SourceAccess(public_only=False)


@dataclass(frozen=True)
class RemoteFile(FileElsewhere):
    """A file in a bucket."""

    address: str  # Such as `s3://bucket/photos/1.jpg`
    access: SourceAccess = PUBLIC
    listed: FileStat | None = None  # What a listing said of it; None where it stands in none
    container = None

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        """Scheme before `://`, in small letters."""
        return self.address.partition("://")[0].lower()

    def stat(self) -> FileStat:
        """Facts that a listing said of it."""
        if self.listed is None:
            raise DownloadError(f"nobody listed '{self}'")
        return self.listed

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes."""
        _require_within(self.listed.st_size if self.listed else 0, limits)
        try:
            system, path = _system_of(self)
            with system.open_input_stream(path) as stream:
                encoded = bytes(stream.read(limits.max_bytes + 1))
        except DownloadError:
            raise
        except OSError as error:
            raise DownloadError(f"'{self}' cannot be read: {_first_line(error)}") from error
        _require_within(len(encoded), limits)
        if not encoded:
            raise NotAnImageError("the file is empty")
        return encoded


ImageFile = Path | FileElsewhere
# Says why a file must not be read, or None when it may.
Refuse = Callable[[ImageFile], str | None]


def refuse_none(_: ImageFile) -> None:
    """Let every file be read."""


def read_file(file: ImageFile, limits: DecodeLimits) -> bytes:
    """Bytes of an image, from the disk or a bucket, that are not more than the limits allow."""
    return read_encoded(file, limits) if isinstance(file, Path) else file.read(limits)


def is_address(text: str) -> bool:
    """Tell whether a text is an address rather than the name of a file."""
    return _ADDRESS.match(text) is not None or is_on_hub(text)


def is_on_hub(text: str) -> bool:
    """Tell whether a text is meant as the address of a data set of the hub of Hugging Face."""
    return text.startswith(HUB_SCHEME)


def refuse_table(address: str) -> None:
    """Refuse the address of a table of a database, without a word of it: it may hold a password."""
    if address.lower().startswith(_DATABASES):
        raise SourceError(
            "tables of databases are not read: export this one to a .parquet file with the columns id and "
            "embedding, and index that as embeddings of a space"
        )


def place_of(text: str) -> Path | str:
    """Place that a text names: a file or folder, or an address, which stays as it is written."""
    return text if is_address(text) else Path(text)


def file_at(place: str, access: SourceAccess, folder: Path = _HERE) -> ImageFile:
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
    _require_bucket(file)
    return file


def file_of_row(place: str, access: SourceAccess, folder: Path, table: Path) -> tuple[ImageFile, str | None]:
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


def list_bucket(address: str, access: SourceAccess) -> Iterator[tuple[str, RemoteFile]]:
    """All files below `s3://bucket/folder`, `gs://…` or `az://container/folder`, each with its path below."""
    place = RemoteFile(address.rstrip("/"), access)
    _require_bucket(place)
    try:
        system, path = _system_of(place)
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise SourceError(f"'{address}' cannot be listed: {_first_line(error)}") from error
    for one in found:
        if one.type == fs.FileType.File:
            inside = one.path.removeprefix(f"{path}/")
            yield inside, RemoteFile(f"{place}/{inside}", access, FileStat(one.size, one.mtime_ns))


def _require_bucket(file: RemoteFile) -> None:
    if file.scheme in _WEB:
        raise SourceError(f"'{file}' is on the web: fetch it with img2dataset, and index its shards")
    if file.scheme not in _BUCKETS:
        known = ", ".join(f"{one}://" for one in _BUCKETS)
        raise SourceError(f"'{file}' is none of the addresses that are read, {known}")


def _require_within(n_bytes: int, limits: DecodeLimits) -> None:
    """Refuse a file that is too large, whatever more of it would come."""
    if n_bytes > limits.max_bytes:
        raise ImageTooLargeError(f"more than {limits.max_bytes:,} bytes, the most that are accepted")


def _first_line(error: OSError) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _system_of(file: RemoteFile) -> tuple[fs.FileSystem, str]:
    """File system that reads the bucket of a file, and the file's path there."""
    if file.access.public_only:
        raise DownloadError(f"'{file}' must not be read: buckets are for whoever runs the program")
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
