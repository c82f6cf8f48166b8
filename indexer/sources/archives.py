"""Archives: WebDataset shards, `.tar` files in which a photo has its label and more beside it.

shards/photos-000.tar       one shard
shards/photos-{000..012}.tar    thirteen

    milk/1.jpg              an image; its id is the shard's name and the path inside
    milk/1.cls              its label
    milk/1.json             its metadata, and its label and id if they stand there
    milk/1.txt              a text, the metadata `text`
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.models.decoding import DecodeLimits, image_suffixes, require_size

__all__ = ["ArchivedImage", "FileStat", "TarMember", "archived_images", "shards_of"]

_SCHEME = "tar://"
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_BESIDE = (".cls", ".json", ".txt")
# What stands beside an image is a few words, whatever a stranger's archive says.
_LARGEST_BESIDE = 2**20
_OPEN_LISTS = 16


class FileStat(NamedTuple):
    """What is known of a file that is no file of its own, as `os.stat_result` names it."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class TarMember:
    """A file in a `.tar` archive; it is looked at and opened as a path is.

    Attributes:
        archive: The archive; absolute.
        name: Its name inside.
    """

    archive: Path
    name: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.archive}#{self.name}"

    @classmethod
    def at(cls, address: str) -> TarMember:
        """A member by its address, as `str` gives it."""
        archive, _, name = address.removeprefix(_SCHEME).partition(".tar#")
        return cls(Path(f"{archive}.tar"), name)

    def is_absolute(self) -> bool:
        """Whether its archive is found from everywhere."""
        return self.archive.is_absolute()

    def stat(self) -> FileStat:
        """Its size, and when its archive was written.

        Raises:
            OSError: The archive cannot be read, or does not hold it.
        """
        _, size = self._place()
        return FileStat(size, self.archive.stat().st_mtime_ns)

    def open(self, _mode: str = "rb") -> io.BytesIO:
        """Its bytes as a stream; see `read`."""
        return io.BytesIO(self.read(DecodeLimits()))

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes.

        Args:
            limits: Its largest size.

        Raises:
            OSError: The archive cannot be read, or does not hold it.
            ImageTooLargeError: It has more bytes than the limits allow.
            NotAnImageError: It is empty.
        """
        offset, size = self._place()
        require_size(size, limits)
        with self.archive.open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    def _place(self) -> tuple[int, int]:
        try:
            return _places(self.archive, self.archive.stat().st_mtime_ns)[self.name]
        except KeyError as error:
            raise DownloadError(f"'{self.archive.name}' holds no '{self.name}'") from error


@dataclass(frozen=True)
class ArchivedImage:
    """An image of a shard, with what stands beside it.

    Attributes:
        file: Where it is.
        label: What `.cls` says; None without one.
        values: What `.json` and `.txt` say.
    """

    file: TarMember
    label: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def shards_of(pattern: Path) -> list[Path]:
    """The archives that a name with numbers such as `{000..012}` stands for; another one is its own."""
    found = _NUMBERS.search(pattern.name)
    if not found:
        return [pattern]
    first, last = int(found[1]), int(found[2])
    width, name = len(found[1]), pattern.name
    return [
        pattern.with_name(f"{name[: found.start()]}{number:0{width}}{name[found.end() :]}")
        for number in range(first, last + 1)
    ]


def archived_images(archive: Path) -> tuple[list[ArchivedImage], Counter[str]]:
    """The images of a shard in order, and how many other files there are by suffix.

    Args:
        archive: An uncompressed `.tar` file.

    Raises:
        SourceError: It cannot be read, or something beside an image cannot.
    """
    archive = archive.absolute()
    try:
        places = _places(archive, archive.stat().st_mtime_ns)
        names = [name for name in places if _suffix(name) in image_suffixes()]
        beside = _beside(archive, places)
    except (tarfile.TarError, OSError) as error:
        raise SourceError(f"shard '{archive}' cannot be read: {error}") from error
    others = Counter(_suffix(name) for name in places if _suffix(name) not in (*image_suffixes(), *_BESIDE))
    images = []
    for name in names:
        said = beside.get(_key(name), {})
        values = dict(said.get(".json", {}))
        if ".txt" in said:
            values["text"] = said[".txt"]
        images.append(ArchivedImage(TarMember(archive, name), said.get(".cls"), values))
    return images, others


@lru_cache(maxsize=_OPEN_LISTS)
def _places(archive: Path, _written_ns: int) -> dict[str, tuple[int, int]]:
    """Where the files of an archive begin, and their sizes, by name."""
    return {name: (offset, size) for name, offset, size in _members(archive)}


def _members(archive: Path) -> Iterator[tuple[str, int, int]]:
    with tarfile.open(archive, "r:") as opened:
        for member in opened:
            if member.isreg() and not member.issparse():
                yield member.name.removeprefix("./"), member.offset_data, member.size
            # Otherwise everything that was seen of a vast archive stays in memory.
            opened.members = []  # type: ignore[attr-defined]


def _beside(archive: Path, places: dict[str, tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """What stands beside images, by their key and its suffix."""
    found: dict[str, dict[str, Any]] = {}
    with archive.open("rb") as stream:
        for name, (offset, size) in places.items():
            suffix = _suffix(name)
            if suffix not in _BESIDE:
                continue
            if size > _LARGEST_BESIDE:
                raise SourceError(f"'{name}' of shard '{archive}' has {size:,} bytes: no few words")
            stream.seek(offset)
            found.setdefault(_key(name), {})[suffix] = _parsed(stream.read(size), suffix, name, archive)
    return found


def _parsed(encoded: bytes, suffix: str, name: str, archive: Path) -> Any:
    try:
        text = encoded.decode("utf-8").strip()
        value = json.loads(text) if suffix == ".json" else text
    except ValueError as error:
        raise SourceError(f"'{name}' of shard '{archive}' cannot be read: {error}") from error
    if suffix == ".json" and not isinstance(value, dict):
        raise SourceError(f"'{name}' of shard '{archive}' is no JSON object")
    return value


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _key(name: str) -> str:
    """What files of one item have in common: the path up to the first dot of the name."""
    folder, _, own = name.rpartition("/")
    return f"{folder}/{own.partition('.')[0]}"
