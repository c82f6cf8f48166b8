"""Files of ready embeddings: tables with a column of them, and arrays of numpy, read some rows at a time."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal, TypeAlias, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo, is_zipfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import AnyArray, FloatArray, Ints
from vicinal.indexer.csv_tables import read_csv, require_single
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.datasets import STATE, SavedDataset
from vicinal.indexer.sources.parquet_datasets import check_growth, open_parquet
from vicinal.indexer.sources.values import Features, reading

# Bytes that are read of a column at a time.
_PIECE = 2**20
_ROWS_OF_A_COLUMN = 65_536
_ROWS_LOOKED_AT = 256
# Bytes before the name in front of each file of a ZIP archive.
_LOCAL_HEADER = 30
# In front of an array; numpy reads no longer ones.
_MOST_HEADER = 16 * 2**10
LANCE = ".lance"
_Tables = Callable[[int, list[str] | None], Iterator[pa.Table]]


@dataclass(frozen=True)
class ReadyRows:
    """Some rows of a source."""

    ids: pa.Array
    labels: pa.Array  # Null where there is none
    uris: pa.Array  # Paths or addresses of what was embedded; empty where the source does not say
    metadata: pa.Array  # JSON objects of all other columns
    embeddings: FloatArray  # (n, d) float32, L2-normalized

    def take(self, places: Ints) -> ReadyRows:
        """The rows at some places."""
        where = pa.array(places)
        columns = (self.ids, self.labels, self.uris, self.metadata)
        ids, labels, uris, metadata = (one.take(where) for one in columns)
        return ReadyRows(ids, labels, uris, metadata, self.embeddings[places])


def open_rows(path: Path, kind: str, columns: Mapping[str, str]) -> EmbeddingRows:
    """Open a file of a kind that `embeddings.kind_of` gives."""
    if kind == ".npz":
        return _read_npz(path, columns["embedding"])
    if kind == ".npy":
        return _read_npy(path, columns)
    return TableRows(path, kind, columns["embedding"])


def read_array(stream: BufferedIOBase, n_bytes: int) -> AnyArray:
    """Read a `.npy` file, whose header is compared with its size before anything is made of it."""
    head = io.BytesIO(stream.read(_MOST_HEADER))
    shape, order, kind = _header(head, n_bytes)
    array = np.empty(math.prod(shape), kind)
    unfilled = memoryview(array.view(np.uint8).data)
    unfilled = unfilled[head.readinto(unfilled) :]
    while unfilled:
        n_read = stream.readinto(unfilled[:_PIECE])
        if not n_read:
            raise ValueError("it ends early")
        unfilled = unfilled[n_read:]
    return array.reshape(shape, order=order)


def _header(head: IO[bytes], n_bytes: int) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Shape, order and type of an array whose beginning is read; `read_array` says what is refused."""
    try:
        version = np.lib.format.read_magic(head)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
            version
        ]
        shape, is_by_column, kind = read(head)
    except Exception as error:  # It is read as Python, which a stranger can let fail in many ways.
        raise ValueError("it does not begin as a .npy file of numpy does") from error
    if kind.hasobject:
        raise ValueError(
            "it holds objects of Python, which are never read: save texts by np.asarray(texts, dtype=str)"
        )
    expected, found = math.prod(shape) * kind.itemsize, n_bytes - head.tell()
    # A truth value is a number too, and no length of an array.
    is_shape = all(type(one) is int and one >= 0 for one in shape)
    if not expected or not is_shape or expected != found:
        raise ValueError(
            f"its header says {kind} of shape {shape}, which are {expected:,} bytes, and {found:,} follow"
        )
    return shape, "F" if is_by_column else "C", kind


class TableRows:
    """Rows of a table with a column of embeddings, whose other `names` are those of its columns.

    `problems` are of the rows that cannot be used, by number from 0, as far as was read.
    """

    def __init__(self, path: Path, kind: str, embedding_column: str) -> None:
        self._path = path
        schema, self._tables = _open_table(path, kind)
        self._column = embedding_column
        self._features = Features.of(schema)
        names = schema.names
        require_single(names, path)
        if embedding_column not in names:
            raise SourceError(
                f"'{path.name}' has no column '{embedding_column}', only {', '.join(names)}: ",
                advise("name the one with the embeddings by {embedding_column}"),
            )
        held = schema.field(embedding_column).type
        lists = pa.types.is_list(held) or pa.types.is_large_list(held) or pa.types.is_fixed_size_list(held)
        numbers = lists and (pa.types.is_floating(held.value_type) or pa.types.is_integer(held.value_type))
        if not numbers:
            raise SourceError(
                f"column '{embedding_column}' of '{path.name}' holds {held}, expected lists of numbers"
            )
        self.names = [name for name in names if name != embedding_column]
        self.problems: dict[int, str] = {}
        self.dim = self._first_length()

    def __len__(self) -> int:
        # Columns beside the embeddings are read faster.
        columns = [*self.names, self._column][:1]
        return sum(map(len, self._tables(_ROWS_OF_A_COLUMN, columns)))

    def column(self, name: str) -> pa.ChunkedArray:
        """Values of one of the columns, whole."""
        first, parts = 0, []
        for table in self._tables(_ROWS_OF_A_COLUMN, [name]):
            parts.append(self._features.named(table, first)[name])
            first += len(table)
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks])

    def batches(self, n_rows: int) -> Iterator[tuple[pa.Table, AnyArray]]:
        """At most so many rows at a time: their columns, and their (b, d) embeddings as they are."""
        first = 0
        for table in self._tables(n_rows, None):
            lists = table[self._column].combine_chunks()
            yield self._features.named(table.drop_columns([self._column]), first), self._matrix(lists, first)
            first += len(table)

    def _first_length(self) -> int:
        n_rows = 0
        for table in self._tables(_ROWS_LOOKED_AT, [self._column]):
            lengths = _lengths(table[self._column])
            if lengths.any():
                return int(lengths[lengths > 0][0])
            n_rows += len(table)
        what = f"no embedding in any of its {n_rows:,} rows" if n_rows else "no rows"
        raise SourceError(f"'{self._path.name}' holds {what}")

    def _matrix(self, lists: Any, first: int) -> AnyArray:
        lengths = _lengths(lists)
        is_there = lengths > 0
        wrong = is_there & (lengths != self.dim)
        if wrong.any():
            row = int(wrong.argmax())
            raise SourceError(
                f"row {first + row + 1} of '{self._path.name}' has an embedding of {lengths[row]} numbers, "
                f"the first one has {self.dim}: all must have the same length"
            )
        for row in np.flatnonzero(~is_there).tolist():
            self.problems[first + row] = "has no embedding"
        matrix = np.zeros((len(lists), self.dim))
        values = lists.filter(pa.array(is_there)).flatten().to_numpy(zero_copy_only=False)
        matrix[is_there] = np.asarray(values, dtype=np.float64).reshape(-1, self.dim)
        return matrix


def _lengths(lists: Any) -> Ints:
    """Numbers of values in each list; none where it is missing."""
    found = pc.if_else(pc.is_valid(lists), pc.list_value_length(lists), 0)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def _open_table(path: Path, kind: str) -> tuple[pa.Schema, _Tables]:
    """Columns of a table on the disk, and the call that reads it in pieces, of some columns or of all."""
    if kind == STATE:
        saved = SavedDataset(path)
        return saved.schema, saved.batches
    if kind == LANCE:
        import lance

        dataset: Any = lance.dataset(str(path))
        schema = dataset.schema
    else:
        schema = open_parquet(path).schema_arrow

    def tables(n_rows: int, columns: list[str] | None) -> Iterator[pa.Table]:
        asked: dict[str, Any] = {"batch_size": n_rows, "columns": columns}
        batches = (
            dataset.to_batches(**asked, batch_readahead=2, fragment_readahead=1, scan_in_order=True)
            if kind == LANCE
            else open_parquet(path).iter_batches(**asked)
        )
        for batch in batches:
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    return schema, tables


class ArrayRows:
    """Rows of an array, beside a table of what else is known of them; see `TableRows`."""

    def __init__(
        self,
        path: Path,
        array: AnyArray,
        table: pa.Table,
        problems: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
            raise SourceError(
                f"the embeddings of '{path.name}' are {array.dtype} of shape {array.shape}, expected numbers "
                "in rows and columns (n, d)"
            )
        self._array = array
        self._table = table
        self.names = list(table.column_names)
        self.problems = dict(problems)
        self.dim = int(array.shape[1])

    def __len__(self) -> int:
        return len(self._array)

    def column(self, name: str) -> pa.ChunkedArray:
        """Values of one of the columns, whole."""
        return self._table[name]

    def batches(self, n_rows: int) -> Iterator[tuple[pa.Table, AnyArray]]:
        """At most so many rows at a time; see `TableRows`."""
        for start in range(0, len(self._array), n_rows):
            yield self._table.slice(start, n_rows), self._array[start : start + n_rows]


EmbeddingRows: TypeAlias = ArrayRows | TableRows


def _read_npz(path: Path, embedding_array: str) -> ArrayRows:
    if not is_zipfile(path):
        raise SourceError(f"'{path.name}' cannot be read: it is no .npz file of numpy")
    with ZipFile(path) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if embedding_array not in members:
            raise SourceError(
                f"'{path.name}' has no array '{embedding_array}', only {', '.join(members)}: ",
                advise("name the one with the embeddings by {embedding_column}"),
            )
        check_growth(path, sum(one.file_size for one in members.values()))
        arrays = {name: _member(path, archive, one) for name, one in members.items()}
    embeddings, others = arrays.pop(embedding_array), arrays
    for name, array in others.items():
        if array.shape != embeddings.shape[:1]:
            raise SourceError(
                f"array '{name}' of '{path.name}' has the shape {array.shape} beside {len(embeddings)} "
                "embeddings: give one value each"
            )
    return ArrayRows(
        path, embeddings, pa.table({name: _column(path, name, one) for name, one in others.items()})
    )


def _column(path: Path, name: str, array: AnyArray) -> pa.Array:
    try:
        # Arrow takes the bytes of a number in the order of this machine alone.
        return pa.array(array.astype(array.dtype.newbyteorder("="), copy=False))
    except pa.ArrowNotImplementedError as error:
        raise SourceError(
            f"array '{name}' of '{path.name}' holds {array.dtype}, expected texts, numbers or seconds"
        ) from error


def _member(path: Path, archive: ZipFile, member: ZipInfo) -> AnyArray:
    """Array of an `.npz` file, mapped where it is stored as it is."""
    try:
        return _mapped(path, archive, member)
    except ValueError as error:
        name = member.filename.removesuffix(".npy")
        raise SourceError(f"array '{name}' of '{path.name}' cannot be read: {error}") from error


def _mapped(path: Path, archive: ZipFile, member: ZipInfo) -> AnyArray:
    with archive.open(member) as stream:
        if member.compress_type != ZIP_STORED:
            return read_array(cast("BufferedIOBase", stream), member.file_size)
        # Its checksum is compared at the end.
        while stream.read(_PIECE):
            pass
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        lengths = (int.from_bytes(header[place : place + 2], "little") for place in (26, 28))
        file.seek(sum(lengths), os.SEEK_CUR)
        start = file.tell()
        head = io.BytesIO(file.read(min(_MOST_HEADER, member.file_size)))
    shape, order, kind = _header(head, member.file_size)
    return np.memmap(path, kind, "r", start + head.tell(), shape, order)


def _read_npy(path: Path, columns: Mapping[str, str]) -> ArrayRows:
    beside = path.with_suffix(".csv")
    if not beside.is_file():
        raise SourceError(
            f"'{path.name}' holds no ids: lay '{beside.name}' beside it, with a column '{columns['id']}' and "
            "a line for each row"
        )
    with reading(f"'{beside.name}'"):
        read = read_csv(beside, columns.values(), texts=[columns["path"]])
    # Rows that cannot be read have no values, and keep their places beside the array.
    n_lines = len(read.numbers) + len(read.bad_rows)
    places = dict(zip(read.numbers, range(n_lines), strict=False))
    table = read.table.take(pa.array([places.get(number) for number in range(1, n_lines + 1)], pa.int64()))
    problems = {
        number - 1: f"cannot be read in '{beside.name}': {reason}" for number, reason in read.bad_rows.items()
    }
    with path.open("rb") as file:
        head = io.BytesIO(file.read(_MOST_HEADER))
    shape, order, kind = _header(head, path.stat().st_size)
    rows = ArrayRows(path, np.memmap(path, kind, "r", head.tell(), shape, order), table, problems)
    if len(table) != len(rows):
        raise SourceError(
            f"'{beside.name}' has {len(table)} lines for the {len(rows)} rows of '{path.name}': give one each"
        )
    return rows
