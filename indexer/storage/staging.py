"""Staging: rows of a version that is being built, where another attempt at the job finds them.

<gallery>/staging/<name>/
  lock          held by the one process that builds
  begun.json    bundle, and which state the gallery was in when the job began
  base.arrow    the items of that state
  rows.lance    finished rows

Searches, live changes and other index jobs do not see any of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from vicinal.indexer.errors import GalleryError, StorageError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.arrays import as_matrix
from vicinal.indexer.storage.files import file_lock, make_folder, storing, write_atomically
from vicinal.models.similarity import FloatArray

__all__ = ["Base", "Staging", "remove_leftovers"]

_BATCH = 8192
_BUNDLE = "bundle"
_NUMBER = "next_number"


@dataclass(frozen=True)
class Base:
    """The state of the gallery when a job began; what was changed since is taken over at its end.

    Attributes:
        contents: As `live_diff.contents_of` gives them.
        token: Token of its activation; None when there was none.
        next_number: The table's counter.
    """

    contents: pa.Table
    token: str | None
    next_number: int


class Staging:
    """Staged rows of one job; a sink for an embedding run.

    Args:
        gallery: The gallery that the rows will belong to.
        name: Name of the job: another attempt under the same name goes on.
    """

    def __init__(self, gallery: Gallery, name: str) -> None:
        self.gallery = gallery
        self.name = name
        self.path = gallery.path / "staging" / name

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the staged rows; the hold ends also when the process dies.

        Raises:
            GalleryBusyError: Another process builds them.
        """
        make_folder(self.path)
        busy = f"job '{self.name}' on gallery '{self.gallery.name}' is being worked on by another process"
        with file_lock(self.path / "lock", busy):
            yield

    def begin(self, bundle: str) -> None:
        """Go on with the rows of an earlier attempt, or begin anew when those are of another bundle."""
        if self._begun().get(_BUNDLE) != bundle:
            self.begin_anew(bundle)

    def begin_anew(self, bundle: str) -> None:
        """Begin without what earlier attempts have staged."""
        shutil.rmtree(self._rows_path, ignore_errors=True)
        (self.path / "base.arrow").unlink(missing_ok=True)
        self._note(bundle=bundle)

    def base(self) -> Base | None:
        """The state of the gallery when the job began, or None before it was noted."""
        path = self.path / "base.arrow"
        begun = self._begun()
        if _NUMBER not in begun or not path.is_file():
            return None
        return Base(pa.feather.read_table(path), begun["token"], int(begun[_NUMBER]))

    def note_base(self, base: Base) -> None:
        """Note the state of the gallery when the job began."""
        partial = self.path / "base.arrow.partial"
        with storing(f"staged rows of gallery '{self.gallery.name}'"):
            pa.feather.write_feather(base.contents, partial)
            partial.replace(self.path / "base.arrow")
        self._note(**{**self._begun(), "token": base.token, _NUMBER: base.next_number})

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return not self._is_begun or self._rows().count_rows() == 0

    def start(self, rows: pa.Table, *, bundle: str, bundle_name: str) -> None:
        """Commit the first rows."""
        del bundle, bundle_name  # noted by `begin`, and given again when the rows are published
        self._commit(rows)

    def append(self, rows: pa.Table) -> None:
        """Commit further rows.

        Raises:
            GalleryError: The gallery was deleted.
            StorageError: The disk refuses.
        """
        self._commit(rows)

    def ids(self) -> list[str]:
        """Ids of the rows, in order."""
        return [] if self.is_empty else list(self._rows().to_table(columns=["id"])["id"].to_pylist())

    def embeddings(self) -> FloatArray:
        """(n, d) float32 embeddings of the rows, in order."""
        embeddings: FloatArray = as_matrix(self._rows().to_table(columns=["embedding"])["embedding"])
        return embeddings

    def batches(self) -> Iterator[pa.Table]:
        """All rows in order, some thousands at a time."""
        for batch in self._rows().to_batches(batch_size=_BATCH, scan_in_order=True):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def drop(self, ids: Sequence[str]) -> npt.NDArray[np.int64]:
        """Remove rows.

        Args:
            ids: Ids of the rows; those that are not there are passed over.

        Returns:
            Ascending positions of the rows that stay, among all before.
        """
        before = pa.array(self.ids(), pa.string())
        stays = pc.invert(pc.is_in(before, pa.array(list(ids), pa.string())))
        gone = before.filter(pc.invert(stays)).to_pylist()
        for start in range(0, len(gone), _BATCH):
            self._rows().delete(f"id IN ({', '.join(map(_quoted, gone[start : start + _BATCH]))})")
        return np.flatnonzero(stays.to_numpy(zero_copy_only=False))

    def remove(self) -> None:
        """Remove everything: the job is over."""
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def _rows_path(self) -> Path:
        return self.path / "rows.lance"

    def _rows(self) -> Any:
        try:
            return lance.dataset(str(self._rows_path))
        except (OSError, ValueError) as error:
            raise GalleryError(self._unusable("read", error)) from error

    def _commit(self, rows: pa.Table) -> None:
        if not (self.path / "begun.json").is_file():
            raise GalleryError(f"gallery '{self.gallery.name}' was deleted while it was indexed")
        mode = "append" if self._is_begun else "create"
        try:
            lance.write_dataset(rows, str(self._rows_path), mode=mode)
        except (OSError, ValueError) as error:
            raise StorageError(self._unusable("written", error)) from error

    @property
    def _is_begun(self) -> bool:
        """Whether anything was committed; a first commit that was cut short leaves files, but no version."""
        return any((self._rows_path / "_versions").glob("*.manifest"))

    def _unusable(self, verb: str, error: Exception) -> str:
        return f"staged rows of gallery '{self.gallery.name}' cannot be {verb}: {error}"

    def _begun(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.path / "begun.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    def _note(self, **fields: Any) -> None:
        write_atomically(self.path / "begun.json", json.dumps(fields) + "\n")


def remove_leftovers(gallery: Gallery, *, but: str) -> None:
    """Remove what other jobs have staged and nobody will come back for.

    Args:
        gallery: The gallery.
        but: Name of the job whose rows stay.
    """
    for folder in (gallery.path / "staging").glob("*"):
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
