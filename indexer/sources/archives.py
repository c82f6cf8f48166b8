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
from typing import Any, BinaryIO, NamedTuple

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
            return _places(self.archive, self.archive.stat().st_mtime_ns)[0][self.name]
        except KeyError as error:
            raise DownloadError(f"'{self.archive.name}' holds no '{self.name}'") from error


@dataclass(frozen=True)
class ArchivedImage:
    """An image of a shard, with what stands beside it.

    Attributes:
        file: Where it is.
        label: What `.cls` says; None without one.
        values: What `.json` and `.txt` say.
        problem: Why one of these cannot be read.
    """

    file: TarMember
    label: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None


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


def archived_images(archive: Path) -> tuple[list[ArchivedImage], Counter[str], str | None]:
    """The images of a shard in order, other files by suffix, and why it was not read to its end.

    Args:
        archive: An uncompressed `.tar` file.

    Raises:
        SourceError: Nothing of it can be read.
    """
    archive = archive.absolute()
    try:
        places, damage = _places(archive, archive.stat().st_mtime_ns)
        names = [name for name in places if _suffix(name) in image_suffixes()]
        beside = _beside(archive, places)
    except (tarfile.TarError, OSError) as error:
        raise SourceError(f"shard '{archive}' cannot be read: {error}") from error
    others = Counter(_suffix(name) for name in places if _suffix(name) not in (*image_suffixes(), *_BESIDE))
    images = []
    for name in names:
        said = beside.get(_key(name), {})
        bad = [str(one) for one in said.values() if isinstance(one, SourceError)]
        if bad:
            images.append(ArchivedImage(TarMember(archive, name), problem=bad[0]))
            continue
        values = dict(said.get(".json", {}))
        if ".txt" in said:
            values["text"] = said[".txt"]
        images.append(ArchivedImage(TarMember(archive, name), said.get(".cls"), values))
    return images, others, damage


@lru_cache(maxsize=_OPEN_LISTS)
def _places(archive: Path, _written_ns: int) -> tuple[dict[str, tuple[int, int]], str | None]:
    """Where the files of an archive begin, and their sizes, by name; and where it breaks off."""
    places: dict[str, tuple[int, int]] = {}
    try:
        for name, offset, size in _members(archive):
            places[name] = offset, size
    except (tarfile.TarError, OSError) as error:
        if not places:
            raise
        # The last of them may be the one that is cut.
        last, (offset, size) = list(places.items())[-1]
        if offset + size > archive.stat().st_size:
            del places[last]
        return places, f"{error}, after {len(places):,} files"
    return places, None


def _members(archive: Path) -> Iterator[tuple[str, int, int]]:
    with tarfile.open(archive, "r:") as opened:
        for member in opened:
            if member.isreg() and not member.issparse():
                yield member.name.removeprefix("./"), member.offset_data, member.size
            # Otherwise everything that was seen of a vast archive stays in memory.
            opened.members = []  # type: ignore[attr-defined]
        with archive.open("rb") as stream:
            stream.seek(opened.offset)
            # Python takes a head that it does not understand for the end.
            if any(stream.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError("damaged")


def _beside(archive: Path, places: dict[str, tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """What stands beside images, by their key and its suffix; an error where it cannot be read."""
    found: dict[str, dict[str, Any]] = {}
    with archive.open("rb") as stream:
        for name, (offset, size) in places.items():
            suffix = _suffix(name)
            if suffix not in _BESIDE:
                continue
            stream.seek(offset)
            try:
                said = _parsed(stream, size, suffix, name)
            except SourceError as error:
                said = error
            found.setdefault(_key(name), {})[suffix] = said
    return found


def _parsed(stream: BinaryIO, size: int, suffix: str, name: str) -> Any:
    if size > _LARGEST_BESIDE:
        raise SourceError(f"'{name}' beside it has {size:,} bytes: no few words")
    try:
        text = stream.read(size).decode("utf-8").strip()
        value = json.loads(text) if suffix == ".json" else text
    except (ValueError, RecursionError, OSError) as error:
        raise SourceError(f"'{name}' beside it cannot be read: {error}") from error
    if suffix == ".json" and not isinstance(value, dict):
        raise SourceError(f"'{name}' beside it is no JSON object")
    return value


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _key(name: str) -> str:
    """What files of one item have in common: the path up to the first dot of the name."""
    folder, _, own = name.rpartition("/")
    return f"{folder}/{own.partition('.')[0]}"
