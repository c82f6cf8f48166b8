"""Staging: rows of a version that is being built, where another attempt at the job finds them.

<gallery>/staging/<name>/
  lock          held by the one process that builds
  begun.json    bundle, and which state the gallery was in when the job began
  base.arrow    the items of that state; begun.json holds its seal
  rows.lance    finished rows, and rows.seals what their files must look like
  embeddings.npy  the embeddings of these, while neighbors are found

Searches, live changes and other index jobs do not see any of it.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.errors import GalleryBusyError, GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.storage.files import (
    FileSeal,
    hold_file,
    make_folder,
    read_sealed,
    storing,
    sync_path,
    write_sealed,
)
from vicinal.indexer.storage.item_table import mapped_matrix, matrices
from vicinal.indexer.storage.sealed_folder import SealedTable
from vicinal.models.configs.sealed_json import BrokenSealError

logger = logging.getLogger(__name__)
_BATCH = 8192


@dataclass(frozen=True)
class Base:
    """The state of the gallery when a job began; what was changed since is taken over at its end."""

    contents: pa.Table  # As `contents_of` gives them
    token: str | None  # Of its activation; None when there was none
    next_number: int  # The table's counter


class Staging:
    """Staged rows of one job, where another attempt under its name goes on; a sink for an embedding run."""

    def __init__(self, gallery: Gallery, name: str) -> None:
        self.gallery = gallery
        self.name = name
        self.path = gallery.path / "staging" / name
        self._begun_path = self.path / "begun.json"
        self._base_path = self.path / "base.arrow"
        self._embeddings_path = self.path / "embeddings.npy"
        self._rows = SealedTable(self.path / "rows.lance", f"staged rows of gallery '{gallery.name}'")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the staged rows; the hold ends also when the process dies."""
        make_folder(self.path)
        busy = f"job '{self.name}' on gallery '{self.gallery.name}' is being worked on by another process"
        with hold_file(self.path / "lock", busy):
            yield

    def begin(self, bundle: str) -> None:
        """Go on with what an earlier attempt has staged, unless it is damaged or of another bundle."""
        try:
            if self._begun().get("bundle") == bundle:
                self.base()
                if self._rows.is_begun:
                    with self._rows.reading():
                        pass
                return
        except GalleryError as damage:
            logger.warning("%s; what was staged is made again", damage)
        self.begin_anew(bundle)

    def begin_anew(self, bundle: str) -> None:
        """Begin without what earlier attempts have staged."""
        self._rows.remove()
        self._base_path.unlink(missing_ok=True)
        self._note(bundle=bundle)

    def base(self) -> Base | None:
        """The state of the gallery when the job began, or None before it was noted."""
        begun = self._begun()
        if "base" not in begun:
            return None
        if not FileSeal.model_validate(begun["base"]).fits(self._base_path, whole=True):
            raise GalleryError(f"'{self._base_path}' is missing or damaged")
        return Base(pa.feather.read_table(self._base_path), begun["token"], int(begun["next_number"]))

    def note_base(self, base: Base) -> None:
        """Note the state of the gallery when the job began."""
        with storing(f"'{self._base_path}'"):
            pa.feather.write_feather(base.contents, self._base_path)
            sync_path(self._base_path)
            seal = FileSeal.of(self._base_path).model_dump()
        numbers = {"token": base.token, "next_number": base.next_number}
        self._note(**{**self._begun(), **numbers, "base": seal})

    @property
    def is_empty(self) -> bool:
        """Tell whether there are no rows."""
        return not self._rows.is_begun or self._rows.latest().count_rows() == 0

    def append(self, rows: pa.Table) -> None:
        """Commit rows."""
        if not self._begun_path.is_file():
            raise GalleryError(f"gallery '{self.gallery.name}' was deleted while it was indexed")
        self._rows.write(rows, "append" if self._rows.is_begun else "create")
        self._rows.seal(self._rows.latest())

    def ids(self) -> list[str]:
        """Ids of the rows, in order."""
        if self.is_empty:
            return []
        with self._rows.reading() as table:
            return list(table.to_table(columns=["id"])["id"].to_pylist())

    def digests(self) -> dict[str, bytes]:
        """Digests of the rows' files by id."""
        with self._rows.reading() as table:
            rows = table.to_table(columns=["id", "content_sha256"])
        return dict(zip(rows["id"].to_pylist(), rows["content_sha256"].to_pylist(), strict=True))

    def embeddings(self) -> FloatArray:
        """(n, d) float32 embeddings of the rows, in order; a memory map, which the next call replaces."""
        with self._rows.reading() as rows, storing(f"'{self._embeddings_path}'"):
            shape = (rows.count_rows(), rows.schema.field("embedding").type.list_size)
            return mapped_matrix(self._embeddings_path, shape, matrices(rows, "embedding"))

    def batches(self) -> Iterator[pa.Table]:
        """All rows in order, some thousands at a time."""
        with self._rows.reading() as table:
            for batch in table.to_batches(batch_size=_BATCH, scan_in_order=True):
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])

    def drop(self, ids: Sequence[str]) -> Ints:
        """Remove rows."""
        before = pa.array(self.ids(), pa.string())
        stays = pc.invert(pc.is_in(before, pa.array(list(ids), pa.string())))
        gone = before.filter(pc.invert(stays)).to_pylist()
        for start in range(0, len(gone), _BATCH):
            self._rows.delete(f"id IN ({', '.join(map(_quoted, gone[start : start + _BATCH]))})")
        return np.flatnonzero(stays.to_numpy(zero_copy_only=False))

    def remove(self) -> None:
        """Remove everything: the job is over."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _begun(self) -> dict[str, Any]:
        try:
            return dict(json.loads(read_sealed(self._begun_path)))
        except FileNotFoundError:
            return {}
        except BrokenSealError:
            logger.warning("'%s' is damaged; what was staged is made again", self._begun_path)
            return {}

    def _note(self, **fields: Any) -> None:
        write_sealed(self._begun_path, json.dumps(fields))


def remove_leftovers(gallery: Gallery, pattern: str, *, but: str) -> None:
    """Remove what other jobs have staged and nobody is at."""
    for folder in (gallery.path / "staging").glob(pattern):
        if folder.name != but:
            other = Staging(gallery, folder.name)
            with suppress(GalleryBusyError), other.held():
                other.remove()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("patch", pa.int64()),
        ("id", pa.string()),
        ("added_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class LiveDiff:
    """Live changes since a noted state."""

    outdated: list[str]  # Ids of items that are gone, or are no longer what they were
    sequences: Ints  # Of the present rows that are new or changed, ascending
    present: set[str]  # Ids of all items that are searched now


def contents_of(gallery: Gallery, activation: Activation | None) -> pa.Table:
    """Columns `sequence`, `patch`, `id` and `added_at` of what is searched, by sequence; maybe none."""
    if activation is None:
        return _SCHEMA.empty_table()
    return gallery.table.columns(activation.revision, _SCHEMA.names).cast(_SCHEMA)


def live_diff(base: Base, now: pa.Table) -> LiveDiff | None:
    """Compare what is searched with a noted state; None when items were indexed anew, not changed."""
    before, next_number = base.contents, base.next_number
    old_sequences, sequences = (table["sequence"].to_numpy() for table in (before, now))
    old = now.filter(pa.array(sequences < next_number))
    places = np.searchsorted(old_sequences, old["sequence"].to_numpy())
    if (places >= len(before)).any():
        return None
    same = before.take(pa.array(places))
    if any(
        same[name].combine_chunks() != old[name].combine_chunks() for name in ("sequence", "id", "added_at")
    ):
        return None
    patches, old_patches = (table["patch"].to_numpy() for table in (old, same))
    if (patches != old_patches)[patches < next_number].any():
        # Whoever went back to an earlier version took a patch back.
        return None
    is_changed = (sequences >= next_number) | (now["patch"].to_numpy() >= next_number)
    is_gone = ~np.isin(old_sequences, sequences)
    came = now.filter(pa.array(is_changed))
    gone = before.filter(pa.array(is_gone))
    outdated = sorted({*gone["id"].to_pylist(), *came["id"].to_pylist()})
    return LiveDiff(outdated, came["sequence"].to_numpy(), set(now["id"].to_pylist()))
