"""Sources of ready embeddings: a Parquet file, arrays of numpy, or an array beside a CSV file of its rows.

.parquet         a column `embedding` of lists of numbers, a column `id`, and maybe `label`, `path` and others
.npz             the arrays `embeddings` (n, d) and `ids` (n,), and maybe `labels` (n,) and others of n values
.npy and .csv    the array (n, d), and beside it a CSV file of the same name with a column `id`, a line a row

Embeddings are read some thousand rows at a time, except those of an `.npz` file. Every row is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import SourceLook, SourceOptions, as_json
from vicinal.models.errors import NoDirectionError
from vicinal.models.similarity import FloatArray, normalize

__all__ = ["EmbeddingSource", "ReadyRows", "holds_embeddings", "may_hold_embeddings"]

# Bytes that are read of a column at a time.
_PIECE = 2**20
_ARRAYS = (".npy", ".npz")
_KINDS = ".parquet file with a column of lists, .npz file, or .npy file with a .csv file of the same name"
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


class _Rows(Protocol):
    """What a kind of file gives; the embeddings are in no column of `names`."""

    names: list[str]
    dim: int

    def column(self, name: str) -> pa.ChunkedArray: ...

    def batches(self, n_rows: int) -> Iterator[tuple[pa.Table, npt.NDArray[Any]]]: ...


class EmbeddingSource:
    """A file of ready embeddings whose ids are checked.

    Args:
        path: The file.
        rows: What is in it.
        columns: Which of its columns are `id`, `label` and `path`; the last two may be missing.
        prefix: Stands before every id.

    Attributes:
        ids: n ids, each there once.

    Raises:
        SourceError: An id is missing, or there twice.
    """

    def __init__(self, path: Path, rows: _Rows, columns: Mapping[str, str], prefix: str = "") -> None:
        self.path = path
        self._rows = rows
        self._columns = columns
        self._prefix = prefix
        id_column = columns["id"]
        if id_column not in rows.names:
            raise SourceError(
                f"'{path.name}' has no ids: it has no '{id_column}', only "
                f"{', '.join(rows.names) or 'embeddings'}; name what holds them by --id-column"
            )
        ids = self._texts(rows.column(id_column), id_column)
        self._check_ids(ids)
        self.ids = pc.binary_join_element_wise(pa.scalar(prefix), ids, "") if prefix else ids

    @classmethod
    def open(cls, path: Path, options: SourceOptions | None = None) -> Self:
        """Open a file; see the module for what it has to hold.

        Args:
            path: The file.
            options: Which columns, or arrays of an `.npz` file, hold what; the usual ones when None.

        Raises:
            SourceError: It is missing, empty, damaged or of another kind, or its ids cannot be used.
        """
        options, kind = options or SourceOptions(), path.suffix.lower()
        if not path.exists():
            raise SourceError(f"there is no source '{path}'")
        if path.is_dir() or kind not in (".parquet", *_ARRAYS):
            raise SourceError(f"'{path}' holds no ready embeddings: give a {_KINDS}")
        columns = {
            name: getattr(options, f"{name}_column") or (_PLURAL[name] if kind == ".npz" else name)
            for name in _PLURAL
        }
        with _reading(path):
            if kind == ".parquet":
                rows: _Rows = _ParquetRows(path, columns["embedding"])
            elif kind == ".npz":
                rows = _read_npz(path, columns["embedding"])
            else:
                rows = _read_npy(path, columns)
            _check_columns(path, rows, options)
            if options.label_rule.kind == "none":
                del columns["label"]
            return cls(path, rows, columns, options.prefix_of(""))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Length d of the embeddings."""
        return self._rows.dim

    def identity(self) -> list[Any]:
        """What changes with the file, and with what is read of it."""
        files = [one for one in (self.path, self.path.with_suffix(".csv")) if one.is_file()]
        written = [(str(one.absolute()), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
        return [written, self.dim, self._rows.names, self._columns, self._prefix]

    def batches(self, n_rows: int) -> Iterator[ReadyRows]:
        """All rows in order.

        Args:
            n_rows: Most rows at a time.

        Raises:
            SourceError: An embedding has another length, is zero, or holds NaN or infinity; or the file is
                damaged.
        """
        first = 0
        with _reading(self.path):
            for table, vectors in self._rows.batches(n_rows):
                ids = self.ids[first : first + len(table)]
                yield self._ready(table, ids, self._normalized(vectors, first))
                first += len(table)

    def look(self) -> SourceLook:
        """Count the labels."""
        name = self._columns.get("label")
        if name is None or name not in self._rows.names:
            return SourceLook.at([None] * len(self))
        with _reading(self.path):
            labels = self._texts(self._rows.column(name), name).to_pylist()
        return SourceLook.at(label or None for label in labels)

    def _ready(self, table: pa.Table, ids: pa.Array, embeddings: FloatArray) -> ReadyRows:
        empty = pa.array([""] * len(table), pa.string())
        labels, uris = (
            pc.fill_null(self._texts(table[column], column), "") if column in table.column_names else empty
            for column in (self._columns.get("label", ""), self._columns["path"])
        )
        others = [name for name in table.column_names if name not in self._columns.values()]
        # Without other columns a table of Arrow gives no rows at all.
        rows = table.select(others).to_pylist() if others else [{}] * len(table)
        metadata = [
            json.dumps({name: as_json(value) for name, value in row.items() if value is not None})
            for row in rows
        ]
        no_label = pc.equal(labels, "")
        return ReadyRows(
            ids,
            pc.if_else(no_label, pa.scalar(None, pa.string()), labels),
            uris,
            pa.array(metadata, pa.string()),
            embeddings,
        )

    def _texts(self, column: pa.ChunkedArray, name: str) -> pa.Array:
        try:
            texts = column.cast(pa.string())
        except pa.ArrowException as error:
            raise SourceError(
                f"'{name}' of '{self.path.name}' holds {column.type}, expected text or whole numbers"
            ) from error
        return pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())

    def _check_ids(self, ids: pa.Array) -> None:
        if not len(ids):
            raise SourceError(f"'{self.path.name}' holds no rows")
        missing = pc.fill_null(pc.equal(ids, ""), True).to_numpy(zero_copy_only=False)
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


def holds_embeddings(path: Path, options: SourceOptions | None = None) -> bool:
    """Whether a source can only be one of ready embeddings: it has some, and names no images.

    Args:
        path: Any source.
        options: Which columns hold what; with a column of embeddings it is one of them.
    """
    options = options or SourceOptions()
    if options.embedding_column:
        return True
    if not may_hold_embeddings(path) or path.suffix.lower() in _ARRAYS:
        return may_hold_embeddings(path)
    with _reading(path):
        names = pa.parquet.read_schema(path).names
    return "embedding" in names and (options.path_column or "path") not in names


def may_hold_embeddings(path: Path) -> bool:
    """Whether a source is of a kind that can be one of ready embeddings; it may also name images."""
    return path.suffix.lower() in (".parquet", *_ARRAYS) and path.is_file()


def _check_columns(path: Path, rows: _Rows, options: SourceOptions) -> None:
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


class _ParquetRows:
    """Rows of a Parquet file, read in batches."""

    def __init__(self, path: Path, embedding_column: str) -> None:
        self._path = path
        self._column = embedding_column
        schema = self._file().schema_arrow
        if embedding_column not in schema.names:
            raise SourceError(
                f"'{path.name}' has no column '{embedding_column}', only {', '.join(schema.names)}: name the "
                "one with the embeddings by --embedding-column"
            )
        held = schema.field(embedding_column).type
        lists = pa.types.is_list(held) or pa.types.is_large_list(held) or pa.types.is_fixed_size_list(held)
        numbers = lists and (pa.types.is_floating(held.value_type) or pa.types.is_integer(held.value_type))
        if not numbers:
            raise SourceError(
                f"column '{embedding_column}' of '{path.name}' holds {held}, expected lists of numbers"
            )
        self.names = [name for name in schema.names if name != embedding_column]
        self.dim = self._first_length()

    def column(self, name: str) -> pa.ChunkedArray:
        return pa.parquet.read_table(self._path, columns=[name])[name]

    def batches(self, n_rows: int) -> Iterator[tuple[pa.Table, npt.NDArray[Any]]]:
        first = 0
        for batch in self._file().iter_batches(batch_size=n_rows):
            table = pa.Table.from_batches([batch])
            lists = table[self._column].combine_chunks()
            yield table.drop_columns([self._column]), self._matrix(lists, first)
            first += len(table)

    def _file(self) -> pa.parquet.ParquetFile:
        # Piece by piece: otherwise a whole group of rows, which may be the whole file, is read ahead.
        return pa.parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=_PIECE)

    def _first_length(self) -> int:
        for batch in self._file().iter_batches(batch_size=1, columns=[self._column]):
            length = pc.list_value_length(batch.column(0))[0].as_py()
            if not length:
                raise SourceError(f"row 1 of '{self._path.name}' has no embedding")
            return int(length)
        raise SourceError(f"'{self._path.name}' holds no rows")

    def _matrix(self, lists: Any, first: int) -> npt.NDArray[Any]:
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        wrong = lengths != self.dim
        if wrong.any():
            row = int(wrong.argmax())
            raise SourceError(
                f"row {first + row + 1} of '{self._path.name}' has an embedding of {lengths[row]} numbers, "
                f"row 1 one of {self.dim}: all must have the same length"
            )
        values = lists.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64).reshape(len(lists), self.dim)


class _ArrayRows:
    """Rows of an array, beside a table of what else is known of them."""

    def __init__(self, path: Path, array: npt.NDArray[Any], table: pa.Table) -> None:
        if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
            raise SourceError(
                f"the embeddings of '{path.name}' are {array.dtype} of shape {array.shape}, expected numbers "
                "in rows and columns (n, d)"
            )
        self._array = array
        self._table = table
        self.names = list(table.column_names)
        self.dim = int(array.shape[1])

    def column(self, name: str) -> pa.ChunkedArray:
        return self._table[name]

    def batches(self, n_rows: int) -> Iterator[tuple[pa.Table, npt.NDArray[Any]]]:
        for start in range(0, len(self._array), n_rows):
            yield self._table.slice(start, n_rows), self._array[start : start + n_rows]


def _read_npz(path: Path, embedding_array: str) -> _ArrayRows:
    with np.load(path, allow_pickle=False) as arrays:
        if embedding_array not in arrays.files:
            raise SourceError(
                f"'{path.name}' has no array '{embedding_array}', only {', '.join(arrays.files)}: name the "
                "one with the embeddings by --embedding-column"
            )
        embeddings = arrays[embedding_array]
        others = {name: arrays[name] for name in arrays.files if name != embedding_array}
    for name, array in others.items():
        if array.shape != embeddings.shape[:1]:
            raise SourceError(
                f"array '{name}' of '{path.name}' has the shape {array.shape} beside {len(embeddings)} "
                "embeddings: give one value each"
            )
    return _ArrayRows(path, embeddings, pa.table({name: pa.array(one) for name, one in others.items()}))


def _read_npy(path: Path, columns: Mapping[str, str]) -> _ArrayRows:
    beside = path.with_suffix(".csv")
    if not beside.is_file():
        raise SourceError(
            f"'{path.name}' holds no ids: lay '{beside.name}' beside it, with a column '{columns['id']}' and "
            "a line for each row"
        )
    texts = dict.fromkeys(columns.values(), pa.string())
    with _reading(beside):
        table = pa.csv.read_csv(beside, convert_options=pa.csv.ConvertOptions(column_types=texts))
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(table) != len(array):
        raise SourceError(
            f"'{beside.name}' has {len(table)} lines for the {len(array)} rows of '{path.name}': give one "
            "each"
        )
    return _ArrayRows(path, array, table)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say of which file it is that a library cannot read it."""
    try:
        yield
    except SourceError:
        raise
    except (pa.ArrowException, BadZipFile, EOFError, OSError, ValueError) as error:
        raise SourceError(f"'{path.name}' cannot be read: {error}") from error
