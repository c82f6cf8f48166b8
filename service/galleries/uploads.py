"""Additions: uploaded images become items of a gallery; one that cannot be used takes no other with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from vicinal.indexer.jobs.changes import add_items
from vicinal.indexer.jobs.preparation import PreparedItem, as_rows, prepare_encoded
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError

__all__ = ["AddedItem", "Addition", "RefusedUpload", "Upload", "add_uploads"]


@dataclass(frozen=True)
class Upload:
    """An image that came with a request.

    Attributes:
        encoded: Its file.
        filename: Its name at the sender's.
        id: Id it shall get; its file name when None, and the digest of its content without one.
    """

    encoded: bytes
    filename: str | None
    id: str | None = None
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def item_id(self) -> str:
        """The id that the item gets."""
        return self.id or self.filename or hashlib.sha256(self.encoded).hexdigest()[:32]


@dataclass(frozen=True)
class AddedItem:
    """An item that is in the gallery now."""

    id: str
    replaced: Annotated[bool, Field(description="Whether there was an item of this id before.")]


@dataclass(frozen=True)
class RefusedUpload:
    """An image that could not be used, and why."""

    upload: Upload
    error: Exception


@dataclass(frozen=True)
class Addition:
    """What became of the uploads.

    Attributes:
        added: In the order of the uploads; of two with one id the last is there.
        refused: Those that are not in the gallery.
    """

    added: list[AddedItem]
    refused: list[RefusedUpload]


def add_uploads(reader: GalleryReader, uploads: Sequence[Upload], embedder: Embedder) -> Addition:
    """Embed images and add them to a gallery in one change.

    Args:
        reader: The gallery.
        uploads: The images.
        embedder: Embedder of the gallery's bundle.

    Raises:
        BundleMismatchError: The gallery was embedded with another bundle.
        GalleryBusyError: Another job keeps writing.
    """
    prepared: list[tuple[Upload, PreparedItem]] = []
    refused: list[RefusedUpload] = []
    for upload in uploads:
        path = Path(upload.filename or upload.item_id)
        item = SourceItem(upload.item_id, path, upload.label, upload.metadata)
        try:
            prepared.append((upload, prepare_encoded(item, upload.encoded, embedder)))
        except ImageError as error:
            refused.append(RefusedUpload(upload, error))
    rows, misfits = _embedded(prepared, embedder)
    refused += misfits
    if rows is None:
        return Addition([], refused)
    change = add_items(reader, rows, bundle=embedder.bundle.fingerprint)
    ids = dict.fromkeys(rows["id"].to_pylist())
    return Addition([AddedItem(item_id, item_id in change.replaced) for item_id in ids], refused)


def _embedded(
    prepared: Sequence[tuple[Upload, PreparedItem]], embedder: Embedder
) -> tuple[pa.Table | None, list[RefusedUpload]]:
    rows: list[pa.Table] = []
    refused: list[RefusedUpload] = []
    vectors = embedder.infer([one.tensor for _, one in prepared])
    for (upload, one), vector in zip(prepared, vectors, strict=True):
        try:
            rows.append(as_rows([one], embedder.finish(vector[None])))
        except EmbeddingError as error:
            refused.append(RefusedUpload(upload, error))
    return pa.concat_tables(rows) if rows else None, refused
