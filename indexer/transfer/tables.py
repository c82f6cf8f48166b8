"""Parquet export: a gallery's items as tables and pictures that other programs read.

<folder>/
  items.parquet         of images: path, id, label and metadata, a manifest as `vicinal index` takes it
  images/               the pictures: originals where they can still be read, thumbnails of the others
  embeddings.parquet    id, label, path, metadata and embedding; its `vicinal` entry says what embedded them
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import scratch, storing
from vicinal.indexer.transfer.moving import pinned

_COLUMNS = ("id", "label", "uri", "metadata", "content_sha256", "thumbnail", "embedding")
_OWN = {"path", "id", "label", "embedding"}
# Of a checksum, in a file's name.
_DIGITS = 32
_KINDS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


@dataclass(frozen=True)
class ParquetExport:
    """Counts of what was exported."""

    n_items: int
    n_originals: int
    n_thumbnails: int


def export_parquet(gallery: Gallery, folder: Path) -> ParquetExport:
    """Write a gallery as it is now into a new folder, which appears whole or not at all."""
    folder = folder.absolute()
    with storing(f"'{folder}'"):
        if folder.exists():
            raise FileExistsError(errno.EEXIST, "it exists")
        with scratch(folder.parent) as staging, pinned(gallery) as copy:
            done = _Export(Gallery(copy), staging / folder.name).run()
            (staging / folder.name).rename(folder)
    return done


class _Export:
    def __init__(self, gallery: Gallery, folder: Path) -> None:
        self._folder, self._table = folder, gallery.table
        view = GalleryReader(gallery).view()
        self._revision = view.revision
        self._has_images = gallery.space is None
        texts = gallery.table.columns(self._revision, ["metadata"])["metadata"].cast(pa.string())
        self._metadata = _kinds_of(map(_metadata, texts.to_pylist()))
        self._n_originals = self._n_thumbnails = 0

    def run(self) -> ParquetExport:
        own = [(name, pa.string()) for name in ("path", "id", "label")]
        described = pa.schema([*own, *((_column(name), kind) for name, kind in self._metadata.items())])
        identity = {"vicinal": json.dumps(self._table.identity(self._revision))}
        embedding = self._table.at(self._revision).schema.field("embedding")
        embedded = described.append(embedding).with_metadata(identity)
        (self._folder / "images" if self._has_images else self._folder).mkdir(parents=True)
        n_items = 0
        with ExitStack() as open_files:
            embeddings = open_files.enter_context(
                ParquetWriter(self._folder / "embeddings.parquet", embedded)
            )
            items = None
            if self._has_images:
                items = open_files.enter_context(ParquetWriter(self._folder / "items.parquet", described))
            for batch in self._table.batches(self._revision, _COLUMNS):
                rows = pa.Table.from_pylist(list(self._rows(batch)), described)
                if items is not None:
                    items.write_table(rows)
                embeddings.write_table(rows.append_column(embedding, batch["embedding"]).cast(embedded))
                n_items += len(rows)
        return ParquetExport(n_items, self._n_originals, self._n_thumbnails)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        names = [name for name in _COLUMNS if name != "embedding"]
        columns = [batch[name].cast(pa.string()) if name == "metadata" else batch[name] for name in names]
        for values in zip(*(column.to_pylist() for column in columns), strict=True):
            row = dict(zip(names, values, strict=True))
            path = row["uri"] if row["thumbnail"] is None else self._picture(row)
            fields = {
                _column(name): _value(value, self._metadata[name])
                for name, value in _metadata(row["metadata"]).items()
            }
            yield {"path": path, "id": row["id"], "label": row["label"], **fields}

    def _picture(self, row: dict[str, Any]) -> str:
        """Keep the picture of an item under its checksum; equal ones are one file."""
        digest, source = row["content_sha256"], Path(row["uri"] or "")
        content = _original(source, digest)
        suffix = ".jpg" if content is None else source.suffix.lower()
        self._n_originals += content is not None
        self._n_thumbnails += content is None
        path = f"images/{digest.hex()[:_DIGITS]}{suffix}"
        (self._folder / path).write_bytes(row["thumbnail"] if content is None else content)
        return path


def _original(path: Path, digest: bytes) -> bytes | None:
    """The file that was indexed; None where it is gone, was changed, or lies in a bucket."""
    try:
        content = path.read_bytes() if path.is_absolute() else b""
    except OSError:
        return None
    return content if sha256(content).digest() == digest else None


def _metadata(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text or "{}"))


def _kinds_of(metadata: Iterable[dict[str, Any]]) -> dict[str, pa.DataType]:
    """Types of the columns of metadata; JSON as text where a field has none of its own."""
    found: dict[str, set[type]] = {}
    for fields in metadata:
        for name, value in fields.items():
            found.setdefault(name, set()).add(type(value))
    return {name: _kind_of(types - {type(None)}) for name, types in found.items()}


def _kind_of(types: set[type]) -> pa.DataType:
    if types == {int, float}:
        return pa.float64()
    return _KINDS.get(types.pop(), pa.string()) if len(types) == 1 else pa.string()


def _value(value: Any, kind: pa.DataType) -> Any:
    is_text = pa.types.is_string(kind) and value is not None
    return json.dumps(value) if is_text and not isinstance(value, str) else value


def _column(name: str) -> str:
    """Column of a field of metadata, whose name may be one of the table's own."""
    return f"metadata.{name}" if name in _OWN else name
