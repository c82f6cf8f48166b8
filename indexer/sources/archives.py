"""Archives: files inside of `.tar` archives, and what is asked of any file that is none of its own."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vicinal.indexer.errors import DownloadError
from vicinal.models.decoding import DecodeLimits, require_size

_SCHEME = "tar://"
_OPEN_LISTS = 16


class FileStat(NamedTuple):
    """Facts of a file that is no file of its own, named as in `os.stat_result`."""

    st_size: int
    st_mtime_ns: int


class FileElsewhere:
    """A file that is none of its own on the disk; it is looked at and opened as a path is."""

    container: Path | None  # File or folder in which it lies, absolute; None in a bucket

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

    container: Path  # Its archive
    name: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.container}#{self.name}"

    @classmethod
    def at(cls, address: str) -> TarMember:
        """A member by its address, as `str` gives it."""
        archive, _, name = address.removeprefix(_SCHEME).partition(".tar#")
        return cls(Path(f"{archive}.tar"), name)

    def stat(self) -> FileStat:
        """Its size, and when its archive was written."""
        _, size = self._place()
        return FileStat(size, self.container.stat().st_mtime_ns)

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes."""
        offset, size = self._place()
        require_size(size, limits)
        with self.container.open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    def _place(self) -> tuple[int, int]:
        try:
            return places_in(self.container, self.container.stat().st_mtime_ns)[0][self.name]
        except KeyError as error:
            raise DownloadError(f"'{self.container.name}' holds no '{self.name}'") from error


@lru_cache(maxsize=_OPEN_LISTS)
def places_in(archive: Path, _written_ns: int) -> tuple[dict[str, tuple[int, int]], set[str], str | None]:
    """Offsets and sizes of an archive's files, names that are there twice, and where it breaks off."""
    places: dict[str, tuple[int, int]] = {}
    twice: set[str] = set()
    try:
        with tarfile.open(archive, "r:") as opened:
            for member in opened:
                if member.isreg() and not member.issparse():
                    name = member.name.removeprefix("./")
                    twice.update({name} & places.keys())
                    places[name] = member.offset_data, member.size
                # Otherwise everything that was seen of a vast archive stays in memory.
                opened.members = []  # type: ignore[attr-defined]
            with archive.open("rb") as stream:
                stream.seek(opened.offset)
                # Python takes a head that it does not understand for the end.
                if any(stream.read(tarfile.BLOCKSIZE)):
                    raise tarfile.ReadError("damaged")
    except (tarfile.TarError, OSError) as error:
        if not places:
            raise
        # The last of them may be the one that is cut.
        last, (offset, size) = list(places.items())[-1]
        if offset + size > archive.stat().st_size:
            del places[last]
        return places, twice, f"{error}, after {len(places):,} files"
    return places, twice, None
