"""Datasets of Hugging Face that `save_to_disk` wrote: read without the package that wrote them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources.archives import FileStat
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

__all__ = ["STATE", "DatasetImage", "SavedDataset", "holds_bytes", "is_saved"]

# Written by `save_to_disk` of a dataset, and of several.
STATE, _PARTS = "state.json", "dataset_dict.json"
_SCHEME = "dataset://"
_OPEN_COLUMNS = 16


@dataclass(frozen=True)
class DatasetImage:
    """An image in a dataset; it is looked at and opened as a path is.

    Attributes:
        folder: The dataset; absolute.
        column: The column of its images.
        row: Its row, from 0.
    """

    folder: Path
    column: str
    row: int

    def __str__(self) -> str:
        return f"{_SCHEME}{self.folder}#{self.column}/{self.row}"

    @classmethod
    def at(cls, address: str) -> DatasetImage:
        """An image by its address, as `str` gives it.

        Raises:
            SourceError: It names no row.
        """
        folder, _, place = address.removeprefix(_SCHEME).rpartition("#")
        column, _, row = place.rpartition("/")
        if not row.isdecimal():
            raise SourceError(f"'{address}' names no row of a dataset")
        return cls(Path(folder), column, int(row))

    def is_absolute(self) -> bool:
        """Whether its dataset is found from everywhere."""
        return self.folder.is_absolute()

    def stat(self) -> FileStat:
        """Its size, and when its dataset was written.

        Raises:
            OSError: The dataset cannot be read, or has no such row.
        """
        return FileStat(len(self._bytes()), (self.folder / STATE).stat().st_mtime_ns)

    def open(self, _mode: str = "rb") -> io.BytesIO:
        """Its bytes as a stream; see `read`."""
        return io.BytesIO(self.read(DecodeLimits()))

    def read(self, limits: DecodeLimits) -> bytes:
        """Its bytes.

        Args:
            limits: Its largest size.

        Raises:
            OSError: The dataset cannot be read, or has no such row.
            ImageTooLargeError: It has more bytes than the limits allow.
            NotAnImageError: It is empty.
        """
        found = self._bytes()
        if len(found) > limits.max_bytes:
            raise ImageTooLargeError(f"{len(found):,} bytes, at most {limits.max_bytes:,} are accepted")
        if not len(found):
            raise NotAnImageError("the file is empty")
        return bytes(found)

    def _bytes(self) -> memoryview:
        """Its bytes where they lie in the file."""
        written = (self.folder / STATE).stat().st_mtime_ns
        try:
            found = _images(self.folder, self.column, written)[self.row].as_buffer()
        except (pa.ArrowException, KeyError, IndexError, ValueError) as error:
            raise DownloadError(f"'{self.folder.name}' has no row {self.row} of images: {error}") from error
        return memoryview(b"" if found is None else found)


class SavedDataset:
    """A dataset of Hugging Face that was written by `save_to_disk`: Arrow streams, which are memory-mapped.

    Labels that are numbers of named classes are these names.

    Args:
        path: Its folder.

    Attributes:
        schema: Its columns.
        image_columns: Those that hold images.
        class_columns: Those that hold named classes.

    Raises:
        SourceError: The folder holds several.
    """

    def __init__(self, path: Path) -> None:
        if not (path / STATE).is_file():
            parts = ", ".join(json.loads((path / _PARTS).read_text(encoding="utf-8"))["splits"])
            raise SourceError(f"'{path.name}' holds several datasets: give one of its folders {parts}")
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        # Names alone: what lies elsewhere is no part of it.
        self._files = [path / Path(one["filename"]).name for one in state["_data_files"]]
        features = json.loads((path / "dataset_info.json").read_text(encoding="utf-8"))["features"]
        self._classes = {
            name: pa.array(feature["names"], pa.string())
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        }
        self.class_columns = list(self._classes)
        self.image_columns = [
            name
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "Image"
        ]
        with pa.memory_map(str(self._files[0])) as stream:
            self.schema = self._named(pa.ipc.open_stream(stream).schema.empty_table()).schema

    @property
    def files(self) -> list[Path]:
        """The files of its rows, in order."""
        return list(self._files)

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
        for file in self._files:
            with pa.memory_map(str(file)) as stream:
                for batch in pa.ipc.open_stream(stream):
                    table = pa.Table.from_batches([batch])
                    yield self._named(table if columns is None else table.select(columns))

    def _named(self, table: pa.Table) -> pa.Table:
        for name in set(self._classes) & set(table.column_names):
            # -1 stands for no class.
            numbers = pc.if_else(pc.less(table[name], 0), None, table[name])
            texts = self._classes[name].take(numbers.combine_chunks())
            table = table.set_column(table.column_names.index(name), name, texts)
        return table.replace_schema_metadata(None)


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether values of a column are bytes, or hold some, such as those of a picture."""
    if pa.types.is_struct(kind):
        return any(holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return holds_bytes(kind.value_type)
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def is_saved(path: Path) -> bool:
    """Whether `save_to_disk` wrote a folder."""
    return any((path / name).is_file() for name in (STATE, _PARTS))


@lru_cache(maxsize=_OPEN_COLUMNS)
def _images(folder: Path, column: str, _written_ns: int) -> pa.ChunkedArray:
    """The bytes of a column of images, memory-mapped."""
    parts: list[pa.Array] = []
    for file in SavedDataset(folder).files:
        # Kept open by what is read of it.
        for batch in pa.ipc.open_stream(pa.memory_map(str(file))):
            found = batch.column(column)
            parts.append(pc.struct_field(found, "bytes") if pa.types.is_struct(found.type) else found)
    return pa.chunked_array(parts)
