"""Archives: WebDataset shards, `.tar` files in which a photo has its label and more beside it.

shards/photos-000.tar       one shard
shards/photos-{000..012}.tar    thirteen

    milk/1.jpg              an image; its id is the shard's name and the path inside
    milk/1.cls              its label
    milk/1.json             its metadata, and its label and id if they stand there
    milk/1.txt              a text, the metadata `text`

What stands beside an image has its name up to a dot: `1.left.jpg` has `1.cls` or `1.left.cls`, whichever has
more of the name. Names may have more dots: `22.05.cls` is about `22.05.jpg`, and not about `22.06.jpg`.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.models.decoding import DecodeLimits, image_suffixes, require_size
from vicinal.models.images.hidden_files import count_hidden, hidden_part

_SCHEME = "tar://"
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_BESIDE = (".cls", ".json", ".txt")
# What stands beside an image is a few words, whatever a stranger's archive says.
_LARGEST_BESIDE = 2**20
_OPEN_LISTS = 16


class FileStat(NamedTuple):
    """Facts of a file that is no file of its own, named as in `os.stat_result`."""

    st_size: int
    st_mtime_ns: int


class FileElsewhere:
    """A file that is none of its own on the disk; it is looked at and opened as a path is."""

    @property
    def container(self) -> Path | None:
        """File or folder in which it lies; None behind an address."""
        return None

    def is_absolute(self) -> bool:
        """Tell whether it is found from everywhere."""
        return self.container is None or self.container.is_absolute()

    def stat(self) -> FileStat:
        """Its size, and when it was written."""
        raise NotImplementedError

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes; no more of them than the limits allow."""
        raise NotImplementedError

    def open(self, _mode: str = "rb") -> io.BytesIO:
        """Its bytes as a stream; see `read`."""
        return io.BytesIO(self.read(DecodeLimits()))


@dataclass(frozen=True)
class TarMember(FileElsewhere):
    """A file in a `.tar` archive."""

    archive: Path  # Absolute
    name: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.archive}#{self.name}"

    @classmethod
    def at(cls, address: str) -> TarMember:
        """A member by its address, as `str` gives it."""
        archive, _, name = address.removeprefix(_SCHEME).partition(".tar#")
        return cls(Path(f"{archive}.tar"), name)

    @property
    def container(self) -> Path:
        """Its archive."""
        return self.archive

    def stat(self) -> FileStat:
        """Its size, and when its archive was written."""
        _, size = self._place()
        return FileStat(size, self.archive.stat().st_mtime_ns)

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes."""
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
    """An image of a shard, with what stands beside it."""

    file: TarMember
    label: str | None = None  # What `.cls` says
    values: dict[str, Any] = field(default_factory=dict)  # What `.json` and `.txt` say
    problem: str | None = None  # Why one of these cannot be read


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


@dataclass(frozen=True)
class Shard:
    """Content of an archive."""

    images: list[ArchivedImage]
    others: Counter[str]  # Neither images nor beside one, by suffix
    hidden: Counter[str]  # Folders and files that were passed over, by name
    damage: str | None  # Why it was not read to its end


def read_shard(archive: Path, *, include_hidden: bool = False) -> Shard:
    """List what is in an archive."""
    archive = archive.absolute()
    try:
        places, damage = _places(archive, archive.stat().st_mtime_ns)
        hidden = Counter() if include_hidden else count_hidden(places)
        if hidden:
            places = {name: place for name, place in places.items() if not hidden_part(name)}
        names = [name for name in places if _suffix(name) in image_suffixes()]
        files = _files_beside(names, [name for name in places if _suffix(name) in _BESIDE])
        beside = _beside(archive, places, files)
    except (tarfile.TarError, OSError) as error:
        raise SourceError(f"shard '{archive}' cannot be read: {error}") from error
    used = {*names, *(one for found in files.values() for one in found)}
    others = Counter(_suffix(name) for name in places if name not in used)
    images = []
    for name in names:
        said = beside.get(name, {})
        bad = [str(one) for one in said.values() if isinstance(one, SourceError)]
        if bad:
            images.append(ArchivedImage(TarMember(archive, name), problem=bad[0]))
            continue
        values = dict(said.get(".json", {}))
        if ".txt" in said:
            values["text"] = said[".txt"]
        images.append(ArchivedImage(TarMember(archive, name), said.get(".cls") or None, values))
    return Shard(images, others, hidden, damage)


@lru_cache(maxsize=_OPEN_LISTS)
def _places(archive: Path, _written_ns: int) -> tuple[dict[str, tuple[int, int]], str | None]:
    """Offsets and sizes of an archive's files, by name; and where it breaks off."""
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


def _files_beside(images: Sequence[str], files: Sequence[str]) -> dict[str, list[str]]:
    """Names of the files that stand beside each image: of each suffix those with most of its name."""
    by_stem: dict[str, list[str]] = {}
    for image in images:
        for stem in _stems(image):
            by_stem.setdefault(stem, []).append(image)
    whole = {_stems(image)[0]: image for image in images} | {image: image for image in images}
    found: dict[str, dict[str, tuple[int, list[str]]]] = {}
    for name in files:
        own, *shorter = _stems(name)
        # A file with another word in its name, `1.meta.json`, is about an image without it, `1.jpg`.
        about = by_stem.get(own) or [whole[one] for one in shorter if one in whole][:1]
        length = len(own)
        for image in about:
            best, names = found.setdefault(image, {}).get(_suffix(name), (-1, []))
            if length >= best:
                kept = [*names, name] if length == best else [name]
                found[image][_suffix(name)] = length, kept
    return {image: [name for _, names in one.values() for name in names] for image, one in found.items()}


def _beside(
    archive: Path, places: dict[str, tuple[int, int]], files: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """Files beside images, by image and suffix; an error where one cannot be read or is there twice."""
    parsed: dict[str, Any] = {}
    with archive.open("rb") as stream:
        for name in {one: None for names in files.values() for one in names}:
            stream.seek(places[name][0])
            try:
                parsed[name] = _parsed(stream, places[name][1], _suffix(name), name)
            except SourceError as error:
                parsed[name] = error
    found: dict[str, dict[str, Any]] = {}
    for image, names in files.items():
        said = found.setdefault(image, {})
        for name in names:
            if (suffix := _suffix(name)) in said:
                other = next(one for one in names if _suffix(one) == suffix)
                said[suffix] = SourceError(f"'{other}' and '{name}' are both beside it: one is needed")
            else:
                said[suffix] = parsed[name]
    return found


def _parsed(stream: BinaryIO, size: int, suffix: str, name: str) -> Any:
    if size > _LARGEST_BESIDE:
        raise SourceError(f"'{name}' beside it has {size:,} bytes: no few words")
    try:
        encoded = stream.read(size)
        # With its byte order mark, or of two bytes a character, as some systems save a text.
        text = encoded.decode(json.detect_encoding(encoded)).strip()
        value = json.loads(text) if suffix == ".json" else text
    except UnicodeDecodeError as error:
        wrong = f"it is not UTF-8: {error.reason} at byte {error.start}"
        raise SourceError(f"'{name}' beside it cannot be read: {wrong}") from error
    except (ValueError, RecursionError, OSError) as error:
        raise SourceError(f"'{name}' beside it cannot be read: {error}") from error
    if suffix == ".json" and not isinstance(value, dict):
        raise SourceError(f"'{name}' beside it is no JSON object")
    return value


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _stems(name: str) -> list[str]:
    """The path without the suffix, then without each further part of the name that a dot begins."""
    folder, _, own = name.rpartition("/")
    parts = own.split(".")
    return [f"{folder}/{'.'.join(parts[:n])}" for n in range(max(len(parts) - 1, 1), 0, -1)]
