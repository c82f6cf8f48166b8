"""Sources of ready embeddings: tables with a column of them, or arrays of numpy.

.parquet         a column `embedding` of lists of numbers, a column `id`, and maybe `label`, `path` and others
x.lance/         a Lance dataset with the same columns
x/state.json     a dataset of Hugging Face that `save_to_disk` wrote, with the same columns
.npz             the arrays `embeddings` (n, d) and `ids` (n,), and maybe `labels` (n,) and others of n values
.npy and .csv    the array (n, d), and beside it a CSV file of the same name with a column `id`, a line a row

Embeddings are read some thousand rows at a time, but those of a compressed `.npz` file, which are held as a
whole. Every row is checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from vicinal.indexer.embedding_files import (
    EmbeddingRows,
    array_rows,
    files_of,
    kind_of,
    open_rows,
    reading,
)
from vicinal.indexer.errors import SourceError
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata, checked_uri
from vicinal.indexer.sources import Source, SourceLook, SourceOptions, value_as_text
from vicinal.indexer.sources.datasets import STATE, SavedDataset
from vicinal.indexer.sources.look import mended_labels
from vicinal.indexer.sources.values import column_texts, metadata_rows
from vicinal.models.errors import NoDirectionError
from vicinal.models.similarity import FloatArray, normalize

__all__ = ["EmbeddingSource", "ReadyRows", "holds_embeddings", "may_hold_embeddings", "open_source"]

_ROWS_A_DIGEST = 65_536
_KINDS = (
    ".parquet file, .lance folder or saved dataset of Hugging Face with a column of lists, .npz file, or "
    ".npy file with a .csv file of the same name"
)
# What the arrays of an .npz file are called that are columns of other files.
_PLURAL = {"id": "ids", "label": "labels", "path": "paths", "embedding": "embeddings"}


@dataclass(frozen=True)
class ReadyRows:
    """Some rows of a source.

    Attributes:
        ids: n ids.
        labels: n labels; null where there is none.
        uris: n paths or addresses of what was embedded; empty where the source does not say.
        metadata: n JSON objects of all other columns.
        embeddings: (n, d) float32, L2-normalized.
    """

    ids: pa.Array
    labels: pa.Array
    uris: pa.Array
    metadata: pa.Array
    embeddings: FloatArray

    def take(self, places: npt.NDArray[np.int64]) -> ReadyRows:
        """The rows at some places."""
        where = pa.array(places)
        return ReadyRows(
            self.ids.take(where),
            self.labels.take(where),
            self.uris.take(where),
            self.metadata.take(where),
            self.embeddings[places],
        )


class EmbeddingSource:
    """A file of ready embeddings whose ids are checked.

    Args:
        path: The file.
        rows: What is in it.
        columns: Which of its columns are `id`, `label` and `path`; the last two may be missing.
        prefix: Stands before every id.
        needs_ids: Refuse a file without ids; otherwise its rows are numbered.

    Attributes:
        ids: n ids, each there once.

    Raises:
        SourceError: An id is missing, or there twice.
    """

    def __init__(
        self,
        path: Path,
        rows: EmbeddingRows,
        columns: Mapping[str, str],
        prefix: str = "",
        *,
        needs_ids: bool = True,
    ) -> None:
        self.path = path
        self._rows = rows
        self._columns = columns
        self._prefix = prefix
        id_column = columns["id"]
        if id_column not in rows.names and not needs_ids:
            self.ids = pa.array([f"{path.name} {row}" for row in range(len(rows))], pa.string())
            return
        if id_column not in rows.names:
            raise SourceError(
                f"'{path.name}' has no ids: it has no '{id_column}', only "
                f"{', '.join(rows.names) or 'embeddings'}; name what holds them by --id-column"
            )
        ids = column_texts(rows.column(id_column), id_column, path.name)
        self._check_ids(ids)
        self.ids = pc.binary_join_element_wise(pa.scalar(prefix), ids, "") if prefix else ids
        for item_id in self.ids.to_pylist():
            checked_id(item_id)

    @classmethod
    def open(cls, path: Path, options: SourceOptions | None = None, *, needs_ids: bool = True) -> Self:
        """Open a file; see the module for what it has to hold.

        Args:
            path: The file.
            options: Which columns, or arrays of an `.npz` file, hold what; the usual ones when None.
            needs_ids: Refuse a file without ids; otherwise its rows are numbered.

        Raises:
            SourceError: It is missing, empty, damaged or of another kind, or its ids cannot be used.
        """
        options, kind = options or SourceOptions(), kind_of(path)
        if not path.exists():
            raise SourceError(f"there is no source '{path}'")
        if not kind:
            raise SourceError(f"'{path}' holds no ready embeddings: give a {_KINDS}")
        columns = {
            name: getattr(options, f"{name}_column") or (_PLURAL[name] if kind == ".npz" else name)
            for name in _PLURAL
        }
        with reading(path):
            rows = open_rows(path, columns)
            _check_columns(path, rows, options)
            if options.label_rule.kind == "none":
                del columns["label"]
            return cls(path, rows, columns, options.prefix_of(""), needs_ids=needs_ids)

    @classmethod
    def of_arrays(
        cls,
        embeddings: npt.ArrayLike,
        ids: Sequence[str],
        *,
        labels: Sequence[str | None] | None = None,
        uris: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> Self:
        """Ready embeddings that a program holds.

        Args:
            embeddings: (n, d) numbers, normalized or not.
            ids: n ids, each there once.
            labels: n labels, None for one without.
            uris: n paths or addresses of what was embedded.
            metadata: n further values, as JSON can hold them.

        Raises:
            SourceError: The lengths differ, or an id is missing or there twice.
        """
        vectors, path = np.asarray(embeddings), Path("<arrays>")
        given = {"id": ids, "label": labels, "path": uris}
        texts = {name: [*one] for name, one in given.items() if one is not None}
        rows = [*metadata] if metadata is not None else []
        lengths = {name: len(values) for name, values in texts.items()}
        lengths |= {} if metadata is None else {"metadata": len(rows)}
        for name, n in lengths.items():
            if n != len(vectors):
                raise SourceError(f"{n:,} values of {name} for {len(vectors):,} embeddings: give one each")
        keys = {key: None for row in rows for key in row}
        taken = [key for key in keys if key in _PLURAL]
        if taken:
            raise SourceError(f"metadata has the key '{taken[0]}', which an item has beside its metadata")
        columns = {name: _given_texts(name, values) for name, values in texts.items()}
        try:
            columns |= {key: pa.array([row.get(key) for row in rows]) for key in keys}
        except pa.ArrowException as error:
            raise SourceError(f"metadata are of mixed kinds: {error}") from error
        return cls(path, array_rows(path, vectors, pa.table(columns)), {name: name for name in _PLURAL})

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Length d of the embeddings."""
        return self._rows.dim

    def identity(self) -> list[Any]:
        """What changes with the file, or with the arrays, and with what is read of it."""
        if not self.path.exists():
            digest = hashlib.sha256(json.dumps(self.ids.to_pylist()).encode())
            for _, vectors in self._rows.batches(_ROWS_A_DIGEST):
                digest.update(np.ascontiguousarray(vectors).tobytes())
            return [digest.hexdigest(), self.dim, self._rows.names, self._columns]
        files = [(one.absolute(), one.stat()) for one in files_of(self.path)]
        written = [(str(file), found.st_size, found.st_mtime_ns) for file, found in files]
        return [written, self.dim, self._rows.names, self._columns, self._prefix]

    def batches(self, n_rows: int) -> Iterator[ReadyRows]:
        """All rows in order.

        Args:
            n_rows: Most rows at a time.

        Raises:
            SourceError: An embedding has another length, is zero, or holds NaN or infinity; or the file is
                damaged.
            ItemRefusedError: Metadata are too deep or too large.
        """
        first = 0
        with reading(self.path):
            for table, vectors in self._rows.batches(n_rows):
                ids = self.ids[first : first + len(table)]
                yield self._ready(table, ids, self._normalized(vectors, first))
                first += len(table)

    def look(self) -> SourceLook:
        """Count the labels."""
        name = self._columns.get("label")
        if name is None or name not in self._rows.names:
            return SourceLook.at([None] * len(self))
        with reading(self.path):
            texts = column_texts(self._rows.column(name), name, self.path.name)
            labels = _checked_labels(texts, self.ids)
        n_mended = len(texts) - pc.sum(pc.equal(texts, labels).fill_null(pc.is_null(texts))).as_py()
        return SourceLook.at(labels.to_pylist(), remark=mended_labels(n_mended))

    def _ready(self, table: pa.Table, ids: pa.Array, embeddings: FloatArray) -> ReadyRows:
        labels, uris = (
            column_texts(table[column], column, self.path.name)
            if column in table.column_names
            else pa.nulls(len(table), pa.string())
            for column in (self._columns.get("label", ""), self._columns["path"])
        )
        labels = _checked_labels(labels, ids)
        names = ids.to_pylist()
        for uri, item_id in zip(uris.to_pylist(), names, strict=True):
            checked_uri(uri or "", item_id)
        rows = metadata_rows(table, self._columns.values())
        metadata = [checked_metadata(row, item_id) for row, item_id in zip(rows, names, strict=True)]
        return ReadyRows(ids, labels, pc.fill_null(uris, ""), pa.array(metadata, pa.string()), embeddings)

    def _check_ids(self, ids: pa.Array) -> None:
        if not len(ids):
            raise SourceError(f"'{self.path.name}' holds no rows")
        missing = pc.is_null(ids).to_numpy(zero_copy_only=False)
        if missing.any():
            raise self._row_error(int(missing.argmax()), "has no id: give every row one, each another")
        # Numbered in the order of their first appearance, so that a repeated one is below what came before.
        numbers = ids.dictionary_encode().indices.to_numpy()
        repeated = numbers[1:] <= np.maximum.accumulate(numbers)[:-1]
        if repeated.any():
            later = int(repeated.argmax()) + 1
            earlier = int((numbers == numbers[later]).argmax())
            raise self._row_error(
                later, f"has the id '{ids[later]}' of row {earlier + 1}: leave one of them out"
            )

    def _normalized(self, vectors: npt.NDArray[Any], first: int) -> FloatArray:
        try:
            return normalize(vectors)
        except NoDirectionError as error:
            raise self._row_error(
                first + error.row, f"has an embedding that {error.what}: embed it again, or leave the row out"
            ) from error

    def _row_error(self, row: int, what: str) -> SourceError:
        return SourceError(f"row {row + 1} of '{self.path.name}' {what}")


def _given_texts(name: str, values: Sequence[Any]) -> pa.Array:
    texts = []
    for row, value in enumerate(values, start=1):
        try:
            texts.append(value_as_text(value))
        except ValueError as error:
            raise SourceError(
                f"{name} {row:,} is {error}, expected text, a whole number, or True or False"
            ) from error
    return pa.array(texts, pa.string())


def _checked_labels(texts: pa.Array, ids: pa.Array) -> pa.Array:
    """Labels in one form, each looked at once.

    Raises:
        ItemRefusedError: One is too long, or holds control characters.
    """
    encoded = texts.dictionary_encode()
    first = dict(zip(reversed(encoded.indices.to_pylist()), reversed(range(len(texts))), strict=True))
    found = [
        checked_label(one, ids[first[i]].as_py()) for i, one in enumerate(encoded.dictionary.to_pylist())
    ]
    return pa.array(found, pa.string()).take(encoded.indices)


def holds_embeddings(path: Path, options: SourceOptions | None = None) -> bool:
    """Whether a source can only be one of ready embeddings: it has some, and names no images.

    Args:
        path: Any source.
        options: Which columns hold what; with a column of embeddings it is one of them.
    """
    options = options or SourceOptions()
    if options.embedding_column:
        return True
    kind = kind_of(path)
    if kind != ".parquet":
        return bool(kind) and not (kind == STATE and _holds_images(path))
    with reading(path):
        names = pa.parquet.read_schema(path).names
    return "embedding" in names and (options.path_column or "path") not in names


def open_source(path: Path | str, options: SourceOptions, *, is_ready: bool) -> EmbeddingSource | Source:
    """Open a source of images or of ready embeddings.

    Args:
        path: Any source; an address is one of images.
        options: How it is read.
        is_ready: A file that can be either is one of embeddings.

    Raises:
        SourceError: It is neither.
    """
    if isinstance(path, str):
        return Source.open(path, options)
    if (is_ready and may_hold_embeddings(path)) or holds_embeddings(path, options):
        return EmbeddingSource.open(path, options)
    return Source.open(path, options)


def may_hold_embeddings(path: Path) -> bool:
    """Whether a source is of a kind that can be one of ready embeddings; it may also name images."""
    return bool(kind_of(path))


def _holds_images(path: Path) -> bool:
    """Whether a saved dataset is one of images, without embeddings of its own."""
    with reading(path):
        saved = SavedDataset(path)
        return bool(saved.image_columns) and "embedding" not in saved.schema.names


def _check_columns(path: Path, rows: EmbeddingRows, options: SourceOptions) -> None:
    """Refuse to take labels or paths from where there are none.

    Raises:
        SourceError: A column is missing that was named, or labels are to be found in paths.
    """
    if options.label_rule.kind in ("folder", "regex"):
        raise SourceError(f"labels of the ready embeddings in '{path.name}' come from column or none")
    for name, column in (("label", options.label_column), ("path", options.path_column)):
        if column and column not in rows.names:
            raise SourceError(
                f"'{path.name}' has no '{column}', only {', '.join(rows.names)}: name what holds the "
                f"{name}s by --{name}-column"
            )
