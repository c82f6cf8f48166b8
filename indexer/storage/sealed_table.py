"""Sealed table: a Lance data set whose files are sealed when they are committed, and compared when read."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from vicinal.indexer.errors import DamagedGalleryError, GalleryError, StorageError
from vicinal.indexer.storage.sealed_file import OnRead, uncounted
from vicinal.indexer.storage.sealed_folder import TableSeals

# Manifests are named so that a listing begins with the newest.
_LAST = 2**64 - 1


class SealedTable:
    """The Lance data set in one folder."""

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
        """The data set at a revision, its rows too."""
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
    """Words of Lance, without the place in its own source."""
    return " ".join(str(error).partition(", /")[0].split())[:300]
