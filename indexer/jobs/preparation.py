"""Preparation: from one source item to all that is kept of it, except its embedding."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import ExifTags, Image

from vicinal.calibration.arrays import Bytes, FloatArray
from vicinal.indexer.duplicates.signatures import SIGNATURE_SIDE
from vicinal.indexer.sources import ImageFile, SourceItem, read_file
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.models.decoding import DecodeLimits, accepted_formats, require_content
from vicinal.models.embedder import Embedder
from vicinal.models.errors import ImageError

_TIMES = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized)
_TIME = re.compile(r"(\d{4})[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
# What strangers write into a file has no length; a name of a camera has.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Capture:
    """Notes of a file on its capture."""

    taken_at: datetime | None = None  # By the camera's own clock, without a zone
    camera: str | None = None  # Make, model and serial number


def read_capture(encoded: bytes) -> Capture:
    """Read the EXIF of an image; what is missing or damaged is None."""
    try:
        with Image.open(io.BytesIO(encoded), formats=accepted_formats()) as image:
            exif = image.getexif()
            inner = exif.get_ifd(ExifTags.IFD.Exif)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, RuntimeError, struct.error):
        # A picture can be good where its EXIF is not.
        return Capture()
    names = (exif.get(ExifTags.Base.Make), exif.get(ExifTags.Base.Model))
    texts = [_text(one) for one in (*names, inner.get(ExifTags.Base.BodySerialNumber))]
    camera = " ".join(text for text in texts if text)[:_LONGEST_NAME]
    times = (_time(inner.get(tag)) for tag in _TIMES)
    return Capture(next((one for one in times if one), None), camera or None)


def _text(value: object) -> str:
    return " ".join(value.replace("\0", " ").split()) if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    found = _TIME.match(value) if isinstance(value, str) else None
    try:
        return datetime(*map(int, found.groups())) if found else None  # type: ignore[arg-type]
    except ValueError:
        # Cameras whose clock was never set write 0000:00:00.
        return None


THUMBNAIL_SIDE = 256


class FileState(NamedTuple):
    """Marks that tell without reading it whether a file was written since."""

    size: int
    modified_at: int  # Microseconds since 1970

    @classmethod
    def of(cls, path: ImageFile) -> FileState | None:
        """The state of a file; None where it cannot be looked at."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_size, found.st_mtime_ns // 1000)


@dataclass(frozen=True)
class PreparedItem:
    """A decoded item, ready for the network."""

    item: SourceItem
    tensor: FloatArray  # (3, S, S) float32
    columns: dict[str, Any]  # What is kept of it, by the names of the gallery table


def prepare_item(item: SourceItem, embedder: Embedder) -> PreparedItem:
    """Read, decode and preprocess one image."""
    # Before it is read: what is written meanwhile is then noticed by the next look at it.
    state = FileState.of(item.path)
    # A job has time: it waits for memory as long as others decode.
    patient = replace(embedder.limits, wait_seconds=None)
    prepared = prepare_encoded(item, read_file(item.path, patient), embedder, patient)
    if state is not None:
        prepared.columns.update(file_size=state.size, modified_at=state.modified_at)
    return prepared


def prepare_encoded(
    item: SourceItem, encoded: bytes, embedder: Embedder, limits: DecodeLimits | None = None
) -> PreparedItem:
    """Decode and preprocess one image that is in memory; its path is only noted."""
    with embedder.decoding(encoded, limits=limits) as image:
        require_content(image)
        # After the decoder, which refuses what is no image or too large for one.
        capture = read_capture(encoded)
        columns = {
            "id": item.id,
            "label": item.label,
            "uri": str(item.path),
            "metadata": json.dumps(item.metadata),
            "thumbnail": make_thumbnail(image),
            "content_sha256": hashlib.sha256(encoded).digest(),
            "signature": make_signature(image),
            "taken_at": capture.taken_at,
            "camera": capture.camera,
        }
        return PreparedItem(item, embedder.prepare(image), columns)


def make_signature(image: Image.Image) -> Bytes:
    """(768,) uint8, an RGB image at 16 x 16 pixels."""
    tiny = image.resize((SIGNATURE_SIDE, SIGNATURE_SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    return np.asarray(tiny, dtype=np.uint8).reshape(-1)


def make_thumbnail(image: Image.Image, side: int = THUMBNAIL_SIDE) -> bytes:
    """JPEG of at most so many pixels a side, without what its file said besides."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=85)
    return stream.getvalue()


def no_rows(dim: int) -> pa.Table:
    """A table as `as_rows` gives it, for no item."""
    text = dict.fromkeys(("id", "label", "uri", "metadata"), pa.string())
    fields = {
        **text,
        "thumbnail": pa.binary(),
        "content_sha256": pa.binary(32),
        "signature": pa.list_(pa.uint8(), 3 * SIGNATURE_SIDE**2),
        "added_at": pa.timestamp("us", tz="UTC"),
        "taken_at": pa.timestamp("s"),
        "camera": pa.string(),
        "source": pa.string(),
        "listing": pa.string(),
        "file_size": pa.int64(),
        "modified_at": pa.timestamp("us", tz="UTC"),
        "embedding": pa.list_(pa.float32(), dim),
    }
    return pa.schema(list(fields.items())).empty_table()


def as_rows(prepared: Sequence[PreparedItem], embeddings: FloatArray) -> pa.Table:
    """Rows of the gallery table."""
    names = {name: None for one in prepared for name in one.columns}
    columns: dict[str, Any] = {name: [one.columns.get(name) for one in prepared] for name in names}
    return _rows({**columns, "signature": as_fixed_lists(np.stack(columns["signature"]))}, embeddings)


def ready_rows(ready: ReadyRows) -> pa.Table:
    """Rows of the gallery table for embeddings that others made; they have no image."""
    columns = {
        "id": ready.ids,
        "label": ready.labels,
        "uri": ready.uris,
        "metadata": ready.metadata,
        "content_sha256": digests_of_ready(ready),
    }
    return _rows(columns, ready.embeddings)


def _rows(columns: Mapping[str, Any], embeddings: FloatArray) -> pa.Table:
    """Rows that are added now; columns that are not given are null."""
    n, dim = embeddings.shape
    given = {**columns, "added_at": [datetime.now(UTC)] * n, "embedding": as_fixed_lists(embeddings)}
    schema = no_rows(dim).schema
    return pa.table({one.name: given.get(one.name, pa.nulls(n, one.type)) for one in schema}, schema=schema)


def digests_of_ready(ready: ReadyRows) -> list[bytes]:
    """SHA-256 digest of each embedding."""
    return [hashlib.sha256(one.tobytes()).digest() for one in ready.embeddings]


def digest_of(path: ImageFile) -> bytes:
    """SHA-256 digest of a file; of one that cannot be read a digest that no file has."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except (ImageError, OSError):
        return b""


def listing_of(label: str | None, metadata: str) -> str:
    """Listing of an item by a source, so that a later look at it tells what changed there."""
    return json.dumps([label, json.loads(metadata)], sort_keys=True)


def stated_by(rows: pa.Table, source: str | None) -> pa.Table:
    """Rows of the gallery table with the source that they came from, if any, and what it says of them."""
    if source is None:
        return rows
    said = [
        listing_of(label, metadata)
        for label, metadata in zip(rows["label"].to_pylist(), rows["metadata"].to_pylist(), strict=True)
    ]
    sources, said_texts = pa.array([source] * len(rows), pa.string()), pa.array(said, pa.string())
    return with_columns(rows, source=sources, listing=said_texts)


def with_columns(rows: pa.Table, **columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Rows with other values in some columns."""
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows
