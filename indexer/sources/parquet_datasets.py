"""Parquet datasets: images inside of Parquet files, as the hub of Hugging Face has them, piece by piece."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources.values import Features, holds_bytes, image_parts, reading

PARQUET = ".parquet"
# Bytes that are read of a file at a time, those of the images that are taken out of it together, and those
# that stay in memory: several threads ask for images nearly in order.
_PIECE, _IMAGES, _KEPT = 2**20, 4 * 2**20, 32 * 2**20
_LEAST_ROWS, _MOST_ROWS = 8, 1024
# Threads are between two files at most.
_OPEN_COLUMNS = 2
# Embeddings and addresses are a little smaller when they are compressed, never so much.
_MOST_GROWTH, _MAY_GROW_TO, _BYTES_A_ROW = 100, 64 * 2**20, 16


class ParquetDataset:
    """Parquet files of the same columns, by names for their rows; their `features`."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._names, self._paths = list(files), list(files.values())
        self.features, counts = self._looked_at()
        self._starts = [0, *accumulate(counts)]
        self.schema = self.features.schema

    def __len__(self) -> int:
        return self._starts[-1]

    def place(self, row: int) -> tuple[Path, int, str]:
        """The file of a row, its number there, and a name made of both."""
        number = bisect_right(self._starts, row) - 1
        inside = row - self._starts[number]
        return self._paths[number], inside, f"{self._names[number]}:{inside}"

    def table(self, columns: list[str]) -> pa.Table:
        """Some columns of all rows."""
        parts = []
        for path in self._paths:
            with open_parquet(path) as file:
                parts.append(self.features.named(file.read(columns)))
        return pa.concat_tables(parts, promote_options="permissive")

    def images(self, column: str) -> tuple[list[str | None], list[bool]]:
        """The path of each image, None where it has none, and whether its bytes are here."""
        paths: list[str | None] = []
        stored: list[bool] = []
        for path in self._paths:
            with open_parquet(path) as file:
                found = _paths_of(file, column)
                paths += found
                stored += _stored(file, column) if any(found) else [True] * len(found)
        return paths, stored

    def _looked_at(self) -> tuple[Features, list[int]]:
        counts, first = [], None
        for name, path in zip(self._names, self._paths, strict=True):
            with open_parquet(path) as file:
                counts.append(file.metadata.num_rows)
                schema = file.schema_arrow
            first = first or schema
            if set(schema.names) != set(first.names):
                raise SourceError(
                    f"'{name}' has the columns {', '.join(schema.names)}, and '{self._names[0]}' has "
                    f"{', '.join(first.names)}: index them one by one"
                )
        return Features.of(first), counts


class ParquetColumn:
    """Images' bytes in a column, for any threads, in order read once; a step back begins with its group."""

    def __init__(self, path: Path, column: str) -> None:
        self._path = path
        self._file = open_parquet(path)
        self._column = self._file.schema_arrow.field(column)
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._starts = [0, *accumulate(counts)]
        self._leaf = _leaf(self._column)
        self._pieces: deque[tuple[int, pa.Array]] = deque()
        self._group, self._next = -1, 0
        self._left: Iterator[pa.RecordBatch] = iter(())
        # First row of a group that cannot be read; those after it cannot either.
        self._damaged: dict[int, tuple[int, str]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, row: int) -> bytes | None:
        """The bytes of a row; None where it has no image."""
        if not 0 <= row < len(self):
            raise IndexError(f"it has {len(self):,} rows")
        with self._lock:
            for first, piece in self._pieces:
                if first <= row < first + len(piece):
                    found: bytes | None = piece[row - first].as_py()
                    return found
            return self._found(row)

    def _found(self, row: int) -> bytes | None:
        group = bisect_right(self._starts, row) - 1
        damaged = self._damaged.get(group)
        if damaged is None or row < damaged[0]:
            try:
                return self._sought(group, row)
            except (pa.ArrowException, OSError) as error:
                self._damaged[group] = damaged = (self._next, str(error).strip())
                self._group = -1
        raise DownloadError(f"'{self._path.name}' cannot be read from row {damaged[0]} on: {damaged[1]}")

    def _sought(self, group: int, row: int) -> bytes | None:
        if group != self._group or row < self._next:
            self._group, self._next = group, self._starts[group]
            self._left = self._file.iter_batches(
                self._rows(group), row_groups=[group], columns=[self._leaf], use_threads=False
            )
        for batch in self._left:
            first, (piece, _) = self._next, image_parts(batch.column(0))
            self._pieces.append((first, piece))
            while len(self._pieces) > 1 and sum(one.nbytes for _, one in self._pieces) > _KEPT:
                self._pieces.popleft()
            self._next += len(piece)
            if self._next == self._starts[group + 1]:
                # Its last page, which may be all of it, stays in memory otherwise.
                self._group, self._left = -1, iter(())
            if row < self._next:
                found: bytes | None = piece[row - first].as_py()
                return found
        raise OSError("it ends too early")

    def _rows(self, group: int) -> int:
        """Number of images of a group that are taken out of the file together."""
        about = self._file.metadata.row_group(group)
        chunks = (about.column(i) for i in range(about.num_columns))
        n_bytes = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema == self._leaf)
        fitting = _IMAGES * about.num_rows // max(1, n_bytes)
        return min(_MOST_ROWS, max(_LEAST_ROWS, fitting))


@lru_cache(maxsize=_OPEN_COLUMNS)
def open_column(path: Path, column: str, _written_ns: int) -> ParquetColumn:
    """A column that stays open for the next image."""
    return ParquetColumn(path, column)


def holds_images(path: Path, column: str | None) -> bool:
    """Tell whether a Parquet file is a dataset of images rather than a manifest that says where they are."""
    with reading(f"manifest '{path}'"):
        schema = pa.parquet.read_schema(path)
        columns = Features.of(schema).image_columns
    if column is None:
        return bool(columns)
    return column in schema.names and holds_bytes(schema.field(column).type)


def open_parquet(path: Path) -> pa.parquet.ParquetFile:
    """Open a Parquet file, of which a piece at a time is read."""
    # Otherwise a whole group of rows, which may be the whole file, is read ahead.
    file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_PIECE)
    said = file.metadata
    groups = (said.row_group(i).total_byte_size for i in range(said.num_row_groups))
    check_growth(path, max(sum(groups), _BYTES_A_ROW * said.num_rows))
    return file


def check_growth(path: Path, n_bytes: int) -> None:
    """Refuse a file that would fill the memory once it is unpacked."""
    packed = path.stat().st_size
    if n_bytes > max(_MAY_GROW_TO, _MOST_GROWTH * packed):
        raise SourceError(
            f"'{path.name}' has {packed:,} bytes and says that it holds {n_bytes:,}: it is damaged, or "
            "made to fill the memory"
        )


def _leaf(column: pa.Field) -> str:
    return f"{column.name}.bytes" if pa.types.is_struct(column.type) else column.name


def _paths_of(file: pa.parquet.ParquetFile, column: str) -> list[str | None]:
    kind = file.schema_arrow.field(column).type
    # Neither more nor less than images: of an empty column the same is asked.
    _, paths = image_parts(pa.chunked_array([], kind))
    if paths is None:
        return [None] * file.metadata.num_rows
    found = file.read([f"{column}.path"])[column]
    texts: list[str | None] = pc.struct_field(found, "path").to_pylist()
    return texts


def _stored(file: pa.parquet.ParquetFile, column: str) -> list[bool]:
    """Tell of each image whether its bytes are here, from the file's statistics where none lacks them."""
    leaf = _leaf(file.schema_arrow.field(column))
    groups = (file.metadata.row_group(i) for i in range(file.num_row_groups))
    chunks = (group.column(i) for group in groups for i in range(group.num_columns))
    notes = [one.statistics for one in chunks if one.path_in_schema == leaf]
    if all(one is not None and one.has_null_count and not one.null_count for one in notes):
        return [True] * file.metadata.num_rows
    batches = file.iter_batches(_LEAST_ROWS, columns=[leaf], use_threads=False)
    return [stored for one in batches for stored in pc.is_valid(image_parts(one.column(0))[0]).to_pylist()]
