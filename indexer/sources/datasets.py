"""Datasets of Hugging Face, in Parquet files or as `save_to_disk` wrote them: read without its packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources.archives import FileElsewhere, FileStat
from vicinal.indexer.sources.parquet_datasets import open_column
from vicinal.indexer.sources.values import Features, image_parts
from vicinal.models.decoding import DecodeLimits, require_size
from vicinal.models.errors import NotAnImageError

# Written by `save_to_disk` of a dataset, and of several.
STATE, PARTS = "state.json", "dataset_dict.json"
ROW_SCHEME = "dataset://"
_OPEN_COLUMNS = 16


@dataclass(frozen=True)
class DatasetImage(FileElsewhere):
    """An image in a dataset."""

    container: Path  # The folder that `save_to_disk` wrote, or a Parquet file
    column: str
    row: int  # From 0

    def __str__(self) -> str:
        return f"{ROW_SCHEME}{self.container}#{self.column}/{self.row}"

    @classmethod
    def at(cls, address: str) -> DatasetImage:
        """An image by its address, as `str` gives it."""
        path, _, place = address.removeprefix(ROW_SCHEME).rpartition("#")
        column, _, row = place.rpartition("/")
        if not row.isdecimal():
            raise SourceError(f"'{address}' names no row of a dataset")
        return cls(Path(path), column, int(row))

    def stat(self) -> FileStat:
        """Its size, in a Parquet file that of the file, and when its dataset was written."""
        written = self._written().stat()
        if not self._is_parquet:
            return FileStat(len(self._bytes() or b""), written.st_mtime_ns)
        with self._found():
            # To know more of each of them a file would be read as a whole.
            if self.row >= len(open_column(self.container, self.column, written.st_mtime_ns)):
                raise IndexError("it is shorter")
        return FileStat(written.st_size, written.st_mtime_ns)

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes."""
        found = self._bytes()
        if found is None:
            raise NotAnImageError("the row has no image")
        require_size(len(found), limits)
        return bytes(found)

    @property
    def _is_parquet(self) -> bool:
        return self.container.is_file()

    def _written(self) -> Path:
        """The file whose time is that of the dataset."""
        return self.container if self._is_parquet else self.container / STATE

    def _bytes(self) -> bytes | memoryview | None:
        """Its bytes, those in a folder where they lie in the file; None where the row has none."""
        written = self._written().stat().st_mtime_ns
        with self._found():
            if self._is_parquet:
                return open_column(self.container, self.column, written).read(self.row)
            found = _images(self.container, self.column, written)[self.row].as_buffer()
        return None if found is None else memoryview(found)

    @contextmanager
    def _found(self) -> Iterator[None]:
        """Say of which dataset it is that there is no such row."""
        try:
            yield
        except (pa.ArrowException, KeyError, IndexError, ValueError) as error:
            raise DownloadError(
                f"'{self.container.name}' has no row {self.row} of images: {error}"
            ) from error


class SavedDataset:
    """Memory-mapped dataset of `save_to_disk`, with names of classes; a folder of several is refused."""

    def __init__(self, path: Path) -> None:
        if not (path / STATE).is_file():
            parts = ", ".join(json.loads((path / PARTS).read_text(encoding="utf-8"))["splits"])
            raise SourceError(f"'{path.name}' holds several datasets: give one of its folders {parts}")
        self._path = path
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        # Names alone: what lies elsewhere is no part of it.
        self.files = [path / Path(one["filename"]).name for one in state["_data_files"]]
        noted = json.loads((path / "dataset_info.json").read_text(encoding="utf-8"))["features"]
        with pa.memory_map(str(self.files[0])) as stream:
            self.features = Features(pa.ipc.open_stream(stream).schema, noted)
        self.schema = self.features.schema

    def place(self, row: int) -> tuple[Path, int, str]:
        """Folder of a row, its number there, and its name."""
        return self._path, row, str(row)

    def table(self, columns: list[str]) -> pa.Table:
        """Some columns of all rows, memory-mapped."""
        return pa.concat_tables([self.schema.empty_table().select(columns), *self._stored(columns)])

    def images(self, column: str) -> tuple[list[str | None], list[bool]]:
        """The path of each image, None where it has none, and whether its bytes are here."""
        stored, paths = image_parts(self.table([column])[column])
        is_here: list[bool] = stored.is_valid().to_pylist()
        return [None] * len(is_here) if paths is None else paths.to_pylist(), is_here

    def batches(self, n_rows: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """At most so many rows at a time, of some columns or of all."""
        waiting: list[pa.Table] = []
        for table in self._stored(columns):
            waiting.append(table)
            if sum(map(len, waiting)) >= n_rows:
                joined = pa.concat_tables(waiting)
                whole = len(joined) - len(joined) % n_rows
                yield from (joined.slice(first, n_rows) for first in range(0, whole, n_rows))
                waiting = [joined.slice(whole)]
        rest = pa.concat_tables(waiting) if waiting else self.schema.empty_table()
        if len(rest):
            yield rest

    def _stored(self, columns: list[str] | None) -> Iterator[pa.Table]:
        first = 0
        for file in self.files:
            with pa.memory_map(str(file)) as stream:
                for batch in pa.ipc.open_stream(stream):
                    table = pa.Table.from_batches([batch])
                    yield self.features.named(table if columns is None else table.select(columns), first)
                    first += len(table)


@lru_cache(maxsize=_OPEN_COLUMNS)
def _images(folder: Path, column: str, _written_ns: int) -> pa.ChunkedArray:
    """The bytes of a column of images, memory-mapped."""
    # Kept open by what is read of it.
    streams = (pa.ipc.open_stream(pa.memory_map(str(file))) for file in SavedDataset(folder).files)
    return pa.chunked_array([image_parts(batch.column(column))[0] for one in streams for batch in one])
