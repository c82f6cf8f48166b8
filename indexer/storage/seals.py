"""Seals: what a file must look like, compared before Faiss, Arrow, Lance or numpy see a byte of it; and the
Lance table whose files are sealed when they are committed and compared when they are read.

Those trust the sizes and offsets that they read: a damaged one makes them read where there is nothing, and
the process is gone. Lance keeps no checksums either: a bit that a disk has lost would come back as another
embedding. So every finished file gets a seal, and whoever opens one compares it first:

    whole     every byte; due for what a native parser follows from place to place, the vector index and
              `items.arrow`, however large they are: 260 MB and 0.2 s for a million items
    sampled   the size and 64 places, the first and the last among them; a file of up to 4 MB in full

Arrays are sampled when they are opened. Of their bytes only the header, in the first block, says where
anything lies, and what numpy maps is as long as that says, or it refuses. The rest are numbers; positions
among them are compared with the length of what they point into. The files of the item table are sampled
too: most are small, and Lance answers damage between the blocks of a large one with an error or another
value. Whoever searches reads all of these in full in the background, at every start and from time to time
(`service.galleries.integrity`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from vicinal.indexer.errors import DamagedGalleryError, GalleryError, StorageError
from vicinal.indexer.storage.files import storing, sync_path, write_atomically

logger = logging.getLogger(__name__)
# A file up to this size is always read in full: a few milliseconds.
_SMALL_BYTES = 4 * 2**20
_BLOCK_BYTES = 4096
_N_BLOCKS = 64
# What one checksum of a file covers, and how long it is.
_SEALED_BYTES = 2**20
_DIGITS = 16
# A file that was written so recently could be written again without another time of change.
_SETTLED_NANOSECONDS = 2 * 10**9
# Tables whose seals are kept as they were read, and files that are known to fit.
_MOST_TABLES, _MOST_FITTED = 16, 4096
# Manifests are named so that a listing begins with the newest.
_LAST = 2**64 - 1


OnRead = Callable[[int], None]


def uncounted(_n_bytes: int) -> None:
    """For a caller that does not want to know."""


class FileSeal(BaseModel):
    """What a file must look like.

    Attributes:
        n_bytes: Its size.
        blocks: The first 16 hexadecimal digits of the SHA-256 of each MiB of it, one after the other.
        sample: Hexadecimal SHA-256 of its samples; of all of it when it is small.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_bytes: int
    blocks: str
    sample: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Seal of a finished file."""
        n_bytes = path.stat().st_size
        return cls(n_bytes=n_bytes, blocks="".join(_blocks_of(path)), sample=_sample_of(path, n_bytes))

    def fits(self, path: Path, *, whole: bool, on_read: OnRead = uncounted) -> bool:
        """Whether a file is there and is what it was.

        Args:
            whole: Compare every byte, and not only samples of a large file.
        """
        try:
            if path.stat().st_size != self.n_bytes:
                return False
            return self._is_whole(path, on_read) if whole else _sample_of(path, self.n_bytes) == self.sample
        except OSError:
            # Gone, or on a part of the disk that cannot be read any more.
            return False

    def _is_whole(self, path: Path, on_read: OnRead) -> bool:
        n_left = self.n_bytes
        starts = range(0, len(self.blocks), _DIGITS)
        # Up to the first block that differs; a file that grew meanwhile has one more.
        for start, found in zip_longest(starts, _blocks_of(path)):
            if start is None or found != self.blocks[start : start + _DIGITS]:
                return False
            on_read(min(n_left, _SEALED_BYTES))
            n_left -= _SEALED_BYTES
        return True


class TableSeals:
    """Seals of the files of a Lance table, one a line in a file beside it.

    Every file that a commit writes gets a line before the commit is answered for. A commit that never came
    into force may leave lines behind, and a crash half a line; neither matters. Each line has a checksum of
    its own: a file whose line is damaged cannot be compared, which is no reason to refuse it; it gets another
    line with the next commit.

    Args:
        folder: Folder of the table.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_suffix(".seals")

    def add(self, files: Iterable[Path]) -> None:
        """Bring finished files to the disk itself and seal them, those that have a seal left out."""
        known = self._known()
        new = {name: path for path in files if (name := self._name(path)) not in known}
        if not new:
            return
        with storing(f"'{self.path}'"):
            for path in [*new.values(), *{path.parent for path in new.values()}]:
                sync_path(path)
            lines = [_line(name, FileSeal.of(path)) for name, path in new.items()]
            is_new = not self.path.exists()
            with self.path.open("a", encoding="utf-8") as stream:
                # A crash may have left half a line.
                stream.write("\n" + "\n".join(lines) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                sync_path(self.path.parent)

    def damaged(self, files: Iterable[Path], *, whole: bool, on_read: OnRead = uncounted) -> Path | None:
        """The first file that is missing or is not what it was; files without a seal are passed over.

        Args:
            whole: Every byte, also of large files; otherwise a file that fitted once and was not written
                since then fits for as long as the process lives.
        """
        known = self._known()
        for path in files:
            seal = known.get(self._name(path))
            if seal is None:
                continue
            if not (seal.fits(path, whole=True, on_read=on_read) if whole else _fits_still(path, seal)):
                return path
        return None

    def forget_removed(self) -> None:
        """Give up the seals of files that are gone."""
        left = {name: seal for name, seal in self._known().items() if (self.folder / name).exists()}
        write_atomically(self.path, "".join(f"{_line(name, seal)}\n" for name, seal in left.items()))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _known(self) -> dict[str, FileSeal]:
        try:
            lines = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        last = _last_read(self.path)
        found = last[0] if last else None
        if found is None or found[0] != lines:
            found = lines, _seals_in(lines, self.path)
            last[:] = [found]
        return found[1]


class SealedTable:
    """The Lance data set in one folder.

    Args:
        path: Its folder.
        name: What it is, for messages.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self._seals = TableSeals(path)

    @property
    def is_begun(self) -> bool:
        """Whether anything was committed; a first commit that was cut short leaves files, but no revision."""
        return self._newest() is not None

    def latest(self) -> Any:
        """The data set at its newest revision, to be written to."""
        return self._open(self._newest())

    def at(self, revision: int) -> Any:
        """The data set at a revision, for all but its rows."""
        return self._open(revision)

    def readable(self, revision: int | None = None) -> Any:
        """The data set at a revision, its rows too.

        Args:
            revision: The revision; the newest when None.
        """
        table = self._open(self._newest() if revision is None else revision)
        self._compare(self._files_of(table.get_fragments()))
        return table

    def check(self, revision: int, *, on_read: OnRead = uncounted) -> None:
        """Compare every byte of the files that hold a revision's rows."""
        self._compare(self._files_of(self.at(revision).get_fragments()), whole=True, on_read=on_read)

    def write(self, rows: pa.Table, mode: str) -> None:
        """Commit rows; not on the disk itself before `seal`."""
        import lance

        with self._committing():
            lance.write_dataset(rows, str(self.path), mode=mode)

    def delete(self, condition: str) -> None:
        """Remove the rows that a Lance SQL expression holds for."""
        table = self.latest()
        with self._committing():
            table.delete(condition)
        self.seal(table)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._seals.path.unlink(missing_ok=True)

    def seal(self, table: Any) -> None:
        """Bring what a commit has written to the disk itself, which Lance does not, and seal it."""
        with self._committing():
            self._seals.add([self._manifest(table.version), *self._files_of(table.get_fragments())])

    def _open(self, revision: int | None) -> Any:
        # Its library has 200 MB, and no search in a version as it was built needs it.
        import lance

        if revision is not None:
            self._compare([self._manifest(revision)])
        try:
            return lance.dataset(str(self.path), version=revision)
        except (OSError, ValueError) as error:
            which = self.name if revision is None else f"revision {revision} of {self.name}"
            raise GalleryError(f"{which} cannot be read: {reason_of(error)}") from error

    def _newest(self) -> int | None:
        """The newest revision; None where nothing was committed."""
        stems = (file.stem for file in (self.path / "_versions").glob("*.manifest"))
        return max((_LAST - int(stem) for stem in stems if stem.isdigit()), default=None)

    def _manifest(self, revision: int) -> Path:
        return self.path / "_versions" / f"{_LAST - revision}.manifest"

    def _files_of(self, fragments: Iterable[Any]) -> list[Path]:
        files = []
        for fragment in fragments:
            deletions = fragment.deletion_file()
            files += [self.path / "data" / one.path for one in fragment.metadata.files]
            files += [self.path / deletions] if deletions else []
        return files

    def _compare(self, files: list[Path], *, whole: bool = False, on_read: OnRead = uncounted) -> None:
        damaged = self._seals.damaged(files, whole=whole, on_read=on_read)
        if damaged is not None:
            raise DamagedGalleryError(
                f"file '{damaged}' of {self.name} is missing or damaged: "
                "bring it back from a backup, or index the gallery again",
                damaged,
            )

    @contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except GalleryError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise StorageError(f"{self.name} cannot be written: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """What Lance says, without the place in its own source."""
    return " ".join(str(error).partition(", /")[0].split())[:300]


def _line(name: str, seal: FileSeal) -> str:
    sealed = json.dumps([name, seal.model_dump()])
    return f"{_digest_of(sealed.encode())} {sealed}"


def _digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


@lru_cache(maxsize=_MOST_TABLES)
def _last_read(_path: Path) -> list[tuple[bytes, dict[str, FileSeal]]]:
    """Place for what was read last of a file. It grows with each change: nothing older is kept."""
    return []


def _seals_in(lines: bytes, path: Path) -> dict[str, FileSeal]:
    known: dict[str, FileSeal] = {}
    n_damaged = 0
    for line in filter(None, lines.split(b"\n")):
        digest, _, sealed = line.partition(b" ")
        if digest == _digest_of(sealed).encode():
            name, seal = json.loads(sealed)
            known[name] = FileSeal.model_validate(seal)
        else:
            n_damaged += 1
    if n_damaged:
        logger.warning("%s lines of '%s' are damaged: what they were for is not compared", n_damaged, path)
    return known


def _fits_still(path: Path, seal: FileSeal) -> bool:
    """Whether samples of a file fit; they are not read again while the file stays as it is."""
    try:
        found = path.stat()
    except OSError:
        return False
    if time.time_ns() - found.st_mtime_ns < _SETTLED_NANOSECONDS:
        return seal.fits(path, whole=False)
    return _fitted(path, seal, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


@lru_cache(maxsize=_MOST_FITTED)
def _fitted(path: Path, seal: FileSeal, _identity: tuple[int, ...]) -> bool:
    return seal.fits(path, whole=False)


def _sample_of(path: Path, n_bytes: int) -> str:
    if n_bytes <= _SMALL_BYTES:
        return _sha256_of(path)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for i in range(_N_BLOCKS):
            # The first block starts the file and the last one ends it.
            stream.seek(i * (n_bytes - _BLOCK_BYTES) // (_N_BLOCKS - 1))
            digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _blocks_of(path: Path) -> Iterator[str]:
    """Checksum of each MiB of a file."""
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_SEALED_BYTES):
            yield hashlib.sha256(block).hexdigest()[:_DIGITS]


def _sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
