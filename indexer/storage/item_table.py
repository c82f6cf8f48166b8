"""Item table: the truth of a gallery, one Lance data set with one row an item.

Every commit is atomic and one Lance version, which is called a revision here: versions of a gallery are
numbered 1, 2, 3, and each is built of one revision. Three columns carry the order and history of the rows:

    sequence                number of the row in the order of addition; kept when the item is patched
    patch                   number of the last patch of label or metadata, -1 for none
    neighbor_ids            sequences of the nearest other items when the row was written

Numbers of both kinds come from one counter that only goes up, so that rows written since a known state are
those at or above its counter. Lance may rewrite its files at any time without changing either.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import AnyArray, FloatArray, Ints, ShortInts
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.filters import Filter
from vicinal.indexer.storage.files import read_sealed_or_refuse, storing, sync_path
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.sealed_folder import SealedTable
from vicinal.models.configs.sealed_json import sealed

_BATCH = 8192


def as_fixed_lists(matrix: AnyArray) -> pa.FixedSizeListArray:
    """An (n, width) matrix as a column of n lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def as_matrix(column: pa.ChunkedArray) -> AnyArray:
    """A column of n lists of one length as an (n, width) matrix; null is a row of zeros."""
    array = column.combine_chunks()
    width: int = array.type.list_size
    if array.null_count:
        known = as_matrix(column.drop_null())
        matrix = np.zeros((len(array), width), known.dtype)
        matrix[array.is_valid().to_numpy(zero_copy_only=False)] = known
        return matrix
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def matrices(rows: Any, column: str) -> Iterator[AnyArray]:
    """A column of a Lance dataset as matrices of some thousand rows, in order."""
    for batch in rows.to_batches(columns=[column], batch_size=_BATCH, scan_in_order=True, batch_readahead=2):
        if batch.num_rows:
            yield as_matrix(pa.chunked_array([batch.column(0)]))


def mapped_matrix(path: Path, shape: tuple[int, int], parts: Iterable[FloatArray]) -> FloatArray:
    """An (n, width) float32 matrix in an `.npy` file, which is larger than memory may be."""
    if not shape[0]:
        return np.empty(shape, np.float32)
    path.unlink(missing_ok=True)
    matrix: FloatArray = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    with path.open("r+b") as stream:
        # A disk that is full must say so now: a write through the map would end the process.
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    first = 0
    for part in parts:
        matrix[first : first + len(part)] = part
        first += len(part)
    return np.asarray(matrix)


def expect_single_rows(array: AnyArray) -> None:
    """Tell the system to read only rows of a memory map that are asked for; otherwise a first search among a
    million items may read 1.5 GB. Reading all rows in order is slower then.
    """
    # What numpy maps has the map as its base, whatever its stubs say; not every system can be told.
    mapped: Any = array.base
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)


_BUNDLE_KEY = b"vicinal"
# Files below this many rows are merged, so that a thousand single additions do not leave a thousand files.
_SMALL_FILE_ROWS = 1024
_MOST_REMOVED_SHARE = 0.5
_BATCH_ROWS = 512
_FILTERED_ROWS = 65_536
# Columns that no search needs: pictures, and where and when an item came from.
_UNSEARCHED = {
    "thumbnail",
    "signature",
    "content_sha256",
    "added_at",
    "taken_at",
    "camera",
    "source",
    "listing",
    "file_size",
    "modified_at",
}
# A name that is being given; it stands for nothing.
_PENDING = "pending"
_REMEDY = "bring it back from a backup, or index the gallery again"


@dataclass(frozen=True)
class Difference:
    """Changes between two revisions: sequences that are gone, ascending; rows that are new or patched."""

    removed: Ints
    added: pa.Table
    patched: pa.Table


class ItemTable(SealedTable):
    """The Lance data set of one gallery."""

    def __init__(self, path: Path, gallery: str) -> None:
        super().__init__(path, f"gallery '{gallery}'")

    def start(self, rows: pa.Table, identity: dict[str, str]) -> None:
        """Commit the first rows of a new generation, which earlier revisions outlive."""
        numbered = _numbered(_stored(rows), first=0)
        described = numbered.replace_schema_metadata({_BUNDLE_KEY: json.dumps(identity)})
        self.write(described, mode="overwrite" if self.path.exists() else "create")

    def append(self, rows: pa.Table) -> None:
        """Commit further rows of the generation that `start` began."""
        self.write(_numbered(_stored(rows), first=self.latest().count_rows()), mode="append")

    def add_neighbors(self, ids: ShortInts, similarities: FloatArray) -> int:
        """Commit the (n, K) lists of all rows of a generation, -1 for padding, and give the revision."""
        table = self.latest()
        lists = {
            "neighbor_ids": as_fixed_lists(ids.astype(np.int64)),
            "neighbor_similarities": as_fixed_lists(similarities),
        }
        columns = pa.table(lists)
        with self._committing():
            table.add_columns(columns.to_reader() if len(columns) else columns.schema)
        self.seal(table)
        return int(table.version)

    def change(self, revision: int, rows: pa.Table | None, removed: Ints) -> int:
        """Remove rows and add others, which may carry removed sequences, in one commit on a revision; what
        was committed after it and never became part of the gallery is left behind.
        """
        import lance
        from lance.fragment import write_fragments

        table = self._made_latest(revision)
        with self._committing():
            updated, emptied = _without(table, removed)
            added = [] if rows is None else write_fragments(_stored(rows), table, mode="append")
            operation = lance.LanceOperation.Update(
                removed_fragment_ids=emptied, updated_fragments=updated, new_fragments=added
            )
            changed = lance.LanceDataset.commit(table.uri, operation, read_version=table.version)
        self.seal(changed)
        return int(changed.version)

    def merge_small_files(self, revision: int, *, drop_removed: bool = False) -> int:
        """Merge the files of many small commits, and rewrite large ones that hold mostly removed rows, which
        takes too long beside changes; gives the new revision, or the same if there were none.
        """
        from lance.optimize import Compaction

        table = self._made_latest(revision)
        before = table.version
        with self._committing():
            Compaction.execute(
                table,
                {
                    "target_rows_per_fragment": _SMALL_FILE_ROWS,
                    "materialize_deletions": drop_removed,
                    "materialize_deletions_threshold": _MOST_REMOVED_SHARE,
                },
            )
        rewritten = self.latest()
        if rewritten.version == before:
            return revision
        self.seal(rewritten)
        return int(rewritten.version)

    def keep(self, name: str, revision: int) -> None:
        """Keep a revision under a name that stands for one; callers see to it that one process does so."""
        # A name that is damaged is given anew.
        with suppress(GalleryError):
            if name in self.kept() and self.kept_as(name) == revision:
                return
        with self._committing():
            # Lance writes names in place: one that a crash cut short would make all of them unreadable.
            self.latest().tags.create(_PENDING, revision)
            pending = self._tag_path(_PENDING)
            # Lance passes over a key that it does not know.
            content = sealed(pending.read_text(encoding="utf-8"))
            mirror = Mirror.keeping(self._tag_path(name))
            if mirror is not None:
                mirror.publish({self._tag_path(name): content})
                pending.unlink()
                return
            pending.write_bytes(content)
            sync_path(pending)
            pending.replace(self._tag_path(name))
            sync_path(pending.parent)

    def release(self, names: Iterable[str]) -> None:
        """Give up revisions that were kept under some names."""
        given_up = sorted(set(names) & set(self.kept()))
        tags = self.latest().tags
        with self._committing():
            for name in given_up:
                tags.delete(name)

    def kept(self) -> dict[str, int]:
        """Revisions that are kept, by name, as Lance reads them; `kept_as` also compares the seal."""
        with self._committing():
            self._tag_path(_PENDING).unlink(missing_ok=True)
            return {name: int(tag["version"]) for name, tag in self.latest().tags.list().items()}

    def kept_as(self, name: str) -> int | None:
        """Revision that is kept under a name, or None; any number of processes may ask at any time."""
        try:
            tag = json.loads(read_sealed_or_refuse(self._tag_path(name), _REMEDY))
        except FileNotFoundError:
            return None
        return int(tag["version"])

    def _tag_path(self, name: str) -> Path:
        return self.path / "_refs" / "tags" / f"{name}.json"

    def clean_up(self, older_than: timedelta) -> int:
        """Remove all revisions but the newest, the kept and the young ones; only a writer may do it."""
        with self._committing():
            # Whoever holds the writer's lock knows that no unfinished file belongs to anyone else.
            removed = self.latest().cleanup_old_versions(
                older_than=older_than, delete_unverified=True, error_if_tagged_old_versions=False
            )
        self._seals.forget_removed()
        return int(removed.bytes_removed)

    def files(self, revision: int) -> dict[str, int]:
        """Bytes of the files that hold a revision's rows, by path."""
        paths = self._files_of(self.at(revision).get_fragments())
        return {str(path): path.stat().st_size for path in paths}

    def n_small_files(self, revision: int) -> int:
        """Files with fewer rows than `merge_small_files` leaves."""
        fragments = self.at(revision).get_fragments()
        return sum(one.metadata.physical_rows < _SMALL_FILE_ROWS for one in fragments)

    def difference(self, before: int, after: int, next_number: int) -> Difference:
        """Changes between two revisions of one generation; only files that differ are read."""
        old, new = self.at(before), self.at(after)
        old_files, new_files = _fragments_by_file(old), _fragments_by_file(new)
        gone = [old_files[key] for key in old_files.keys() - new_files.keys()]
        came = [new_files[key] for key in new_files.keys() - old_files.keys()]
        self._compare(self._files_of([*gone, *came]))
        condition = f"sequence >= {next_number} OR patch >= {next_number}"
        searched = [name for name in new.schema.names if name not in _UNSEARCHED]
        with self._as_errors("read", GalleryError):
            left = np.sort(np.setdiff1d(_sequences(old, gone), _sequences(new, came), assume_unique=True))
            rows = _read(new, searched, condition, came).sort_by("sequence")
        is_new = pc.greater_equal(rows["sequence"], next_number)
        return Difference(left, rows.filter(is_new), rows.filter(pc.invert(is_new)))

    def columns(self, revision: int, names: list[str]) -> pa.Table:
        """Whole columns of a revision, one row an item in gallery order."""
        with self.reading(revision) as table:
            rows = table.to_table(columns=[*dict.fromkeys([*names, "sequence"])])
        sequences = rows["sequence"].to_numpy()
        if (np.diff(sequences) < 0).any():
            rows = rows.take(np.argsort(sequences))
        return rows.select(names)

    def embeddings(self, revision: int, path: Path) -> FloatArray:
        """(n, d) float32 embeddings of a revision in gallery order, in an `.npy` file."""
        with self.reading(revision) as rows:
            shape = (rows.count_rows(), rows.schema.field("embedding").type.list_size)
            with storing(f"'{path}'"):
                matrix = mapped_matrix(path, shape, matrices(rows, "embedding"))
            sequences = rows.to_table(columns=["sequence"], scan_in_order=True)["sequence"].to_numpy()
        # Only changes put rows out of order, and a version that was built holds none.
        return matrix[np.argsort(sequences)] if (np.diff(sequences) < 0).any() else matrix

    def batches(self, revision: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of a revision bit by bit, for those that are too large for memory; in no order."""
        with self.reading(revision) as rows:
            yield from rows.to_batches(columns=list(names), batch_size=_BATCH_ROWS, batch_readahead=2)

    def rows(self, revision: int, sequences: Ints, names: Sequence[str] = ()) -> pa.Table:
        """Rows by sequence, complete or with some columns."""
        with self.reading(revision) as table:
            columns = list(names) or table.schema.names
            wanted = list(dict.fromkeys([*columns, "sequence"]))
            return _read(table, wanted, _one_of(sequences)).sort_by("sequence").select(columns)

    def find(self, revision: int, column: str, condition: str) -> list[Any]:
        """Values of a column where a condition holds, in no order."""
        with self.reading(revision) as table:
            rows = table.to_table(columns=[column], filter=condition)
        return list(rows[column].to_pylist())

    def matching(self, revision: int, filter: Filter) -> Ints:
        """Sequences of the rows that fulfil a filter, ascending."""
        columns = {"sequence": "sequence", **filter.columns()}
        with self.reading(revision) as table:
            rows = table.to_batches(columns=columns, batch_size=_FILTERED_ROWS)
            found = [batch.column("sequence").to_numpy()[filter.selects(batch)] for batch in rows]
        return np.sort(np.concatenate([np.empty(0, np.int64), *found]))

    def next_number(self, revision: int) -> int:
        """Smallest number above all sequences and patches of a revision."""
        with self.reading(revision) as table:
            rows = table.to_table(columns=["sequence", "patch"])
        return (
            max((pc.max(rows[name]).as_py() for name in ("sequence", "patch") if len(rows)), default=-1) + 1
        )

    def identity(self, revision: int) -> dict[str, str]:
        """Identity of a revision; see `start`."""
        return dict(json.loads(self.at(revision).schema.metadata[_BUNDLE_KEY]))

    def _made_latest(self, revision: int) -> Any:
        """The data set whose newest revision is a given one, or a copy of it."""
        table = self.latest()
        if table.version == revision:
            return table
        with self._committing():
            self.at(revision).restore()
        return self.latest()


def _numbered(rows: pa.Table, first: int) -> pa.Table:
    n = len(rows)
    numbered = rows.append_column("sequence", pa.array(np.arange(first, first + n), pa.int64()))
    return numbered.append_column("patch", pa.array(np.full(n, -1), pa.int64()))


def _stored(rows: pa.Table) -> pa.Table:
    """Rows with their metadata as JSON, which filters can look into."""
    column = rows.schema.get_field_index("metadata")
    return rows.set_column(column, "metadata", rows["metadata"].cast(pa.json_()))


def _without(table: Any, removed: Ints) -> tuple[list[Any], list[int]]:
    """Fragments without some rows, and the ids of those that have none left."""
    if not len(removed):
        return [], []
    condition = _one_of(removed)
    rows = table.to_table(columns=[], filter=condition, with_row_address=True)
    addresses = rows["_rowaddr"].to_numpy()
    updated, emptied = [], []
    for fragment_id in np.unique(addresses >> np.uint64(32)).tolist():
        rest = table.get_fragment(fragment_id).delete(condition)
        if rest is None:
            emptied.append(fragment_id)
        else:
            updated.append(rest)
    return updated, emptied


def _fragments_by_file(table: Any) -> dict[tuple[object, ...], Any]:
    """Fragments by all that decides which rows they hold."""
    return {
        (*(file.path for file in fragment.metadata.files), fragment.deletion_file()): fragment
        for fragment in table.get_fragments()
    }


def _sequences(table: Any, fragments: list[Any]) -> Ints:
    return _read(table, ["sequence"], None, fragments)["sequence"].to_numpy()


def _read(
    table: Any, columns: list[str], condition: str | None, fragments: list[Any] | None = None
) -> pa.Table:
    if fragments is not None and not fragments:
        return table.schema.empty_table().select(columns)
    return table.scanner(columns=columns, filter=condition, fragments=fragments).to_table()


def _one_of(sequences: Ints) -> str:
    return f"sequence IN ({', '.join(map(str, sequences.tolist()))})"
