"""Sealed folders: Lance tables, whose files are compared with their seals before anybody reads them.

Lance has no checksums: beside a table lies `<table>.seals`, with a line for each file that was committed.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from vicinal.indexer.errors import DamagedGalleryError, GalleryError, StorageError
from vicinal.indexer.storage.files import (
    CachedFile,
    FileSeal,
    OnRead,
    digest_of,
    fetched_again,
    storing,
    sync_path,
    uncounted,
    write_atomically,
)

logger = logging.getLogger(__name__)
# Manifests of Lance are named so that a listing begins with the newest.
_LAST = 2**64 - 1
# Tables whose seals are kept as they were read.
_MOST_TABLES = 16
# Lines of them that are kept as they were read: three times as many as ten million staged rows have.
_MOST_LINES = 8192


class TableSeals:
    """Seals of the files of a Lance table, one a line in a file beside it.

    Every file of a commit gets a line before the commit is answered for. A crash may leave lines without a
    commit, or half a line; neither matters. Each line has a checksum: a file whose line is damaged cannot be
    compared, which is no reason to refuse it; it gets another line with the next commit.
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
        """The first file that is missing or is not what it was; files without a seal are passed over."""
        known = self._known()
        for path in files:
            seal = known.get(self._name(path))
            if seal is None:
                continue
            if not (seal.fits(path, whole=True, on_read=on_read) if whole else seal.fits_still(path)):
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
            return _lines_of(self.path).read()
        except FileNotFoundError:
            return {}


@lru_cache(maxsize=_MOST_TABLES)
def _lines_of(path: Path) -> CachedFile[dict[str, FileSeal]]:
    """Seals of a table, which grow with each change: nothing older is kept."""
    return CachedFile(path, partial(_seals_in, path))


def _line(name: str, seal: FileSeal) -> str:
    line = json.dumps([name, seal.model_dump()])
    return f"{digest_of(line.encode())} {line}"


def _seals_in(path: Path, lines: bytes) -> dict[str, FileSeal]:
    read = [_read_line(line) for line in lines.split(b"\n") if line]
    if n_damaged := read.count(None):
        logger.warning("%s lines of '%s' are damaged: what they were for is not compared", n_damaged, path)
    return dict(filter(None, read))


@lru_cache(maxsize=_MOST_LINES)
def _read_line(line: bytes) -> tuple[str, FileSeal] | None:
    """Name and seal in a line, None where it is damaged; all but the last of a table were read before."""
    digest, _, sealed = line.partition(b" ")
    if digest != digest_of(sealed).encode():
        return None
    name, seal = json.loads(sealed)
    return name, FileSeal.model_validate(seal)


class SealedTable:
    """The Lance data set in one folder."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self._seals = TableSeals(path)

    @property
    def is_begun(self) -> bool:
        """Tell whether anything was committed; a first commit cut short leaves files, but no revision."""
        return self._newest() is not None

    def has(self, revision: int) -> bool:
        """Tell whether a revision lies here; what it names came before it."""
        return self._manifest(revision).exists()

    def latest(self) -> Any:
        """The data set at its newest revision, to be written to."""
        return self.at(self._newest())

    def at(self, revision: int | None) -> Any:
        """The data set at a revision, for all but its rows; None is for the error where there is none."""
        # Its library has 200 MB, and no search in a version as it was built needs it.
        import lance

        if revision is not None:
            self._compare([self._manifest(revision)])
        try:
            return lance.dataset(str(self.path), version=revision)
        except (OSError, ValueError) as error:
            which = self.name if revision is None else f"revision {revision} of {self.name}"
            raise GalleryError(f"{which} cannot be read: {reason_of(error)}") from error

    @contextmanager
    def reading(self, revision: int | None = None) -> Iterator[Any]:
        """The data set at a revision, its rows too; files may go, or fail, while they are read."""
        table = self.latest() if revision is None else self.at(revision)
        self._compare(self._files_of(table.get_fragments()))
        with self._as_errors("read", GalleryError):
            yield table

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
        while damaged is not None and fetched_again(damaged):
            damaged = self._seals.damaged(files, whole=whole)
        if damaged is not None:
            raise DamagedGalleryError(
                f"file '{damaged}' of {self.name} is missing or damaged: "
                "bring it back from a backup, or index the gallery again",
                damaged,
            )

    def _committing(self) -> AbstractContextManager[None]:
        return self._as_errors("written", StorageError)

    @contextmanager
    def _as_errors(self, done: str, kind: type[GalleryError]) -> Iterator[None]:
        """Errors of Lance as errors of one kind."""
        try:
            yield
        except GalleryError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            raise kind(f"{self.name} cannot be {done}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Words of Lance, without the place in its own source."""
    return " ".join(str(error).partition(", /")[0].split())[:300]
