"""Additions: uploaded images become items of a gallery; one that cannot be used takes no other with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from vicinal.indexer.errors import ItemExistsError
from vicinal.indexer.jobs.changes import add_items
from vicinal.indexer.jobs.conflicts import OnConflict, Outcome
from vicinal.indexer.jobs.preparation import PreparedItem, as_rows, prepare_encoded
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError

__all__ = ["AddedItem", "Addition", "RefusedUpload", "SentImage", "Upload", "add_uploads"]


@dataclass(frozen=True)
class Upload:
    """An image that came with a request.

    Attributes:
        encoded: Its file.
        filename: Its name at the sender's.
        id: Id it shall get; the digest of its file when None, so that two files of one name stay apart.
    """

    encoded: bytes
    filename: str | None
    id: str | None = None
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def item_id(self) -> str:
        """The id that the item gets."""
        return self.id or hashlib.sha256(self.encoded).hexdigest()[:32]


@dataclass(frozen=True)
class SentImage:
    """One image of a request, and the id that it has or would have got."""

    image: Annotated[int, Field(description="Its place in the request, from 0.")]
    id: str
    filename: str | None


@dataclass(frozen=True)
class AddedItem(SentImage):
    """An item that is in the gallery now."""

    replaced: Annotated[bool, Field(description="Whether there was an item of this id before.")]


@dataclass(frozen=True)
class RefusedUpload:
    """An image that is not in the gallery, and why."""

    sent: SentImage
    error: Exception


@dataclass
class Addition:
    """What became of the uploads, each in their order.

    Attributes:
        added: Items that were written; of two with one id the later one is there.
        unchanged: Images that were there already under their id.
        skipped: Images that were passed over, because another image has their id.
        refused: Images that could not be used, or whose id belongs to another image.
    """

    added: list[AddedItem] = field(default_factory=list)
    unchanged: list[SentImage] = field(default_factory=list)
    skipped: list[SentImage] = field(default_factory=list)
    refused: list[RefusedUpload] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        """Whether every image was refused."""
        return not (self.added or self.unchanged or self.skipped)


def add_uploads(
    reader: GalleryReader, uploads: Sequence[Upload], embedder: Embedder, *, on_conflict: OnConflict = "error"
) -> Addition:
    """Embed images and add them to a gallery in one change.

    Args:
        reader: The gallery.
        uploads: The images.
        embedder: Embedder of the gallery's bundle.
        on_conflict: What to do with an image whose id belongs to another one; `error` refuses it alone.

    Raises:
        BundleMismatchError: The gallery was embedded with another bundle.
        GalleryBusyError: Another job keeps writing.
    """
    addition = Addition()
    prepared: list[tuple[SentImage, PreparedItem]] = []
    for place, upload in enumerate(uploads):
        sent = SentImage(place, upload.item_id, upload.filename)
        item = SourceItem(sent.id, Path(upload.filename or sent.id), upload.label, upload.metadata)
        try:
            prepared.append((sent, prepare_encoded(item, upload.encoded, embedder)))
        except ImageError as error:
            addition.refused.append(RefusedUpload(sent, error))
    embedded = list(_embedded(prepared, embedder, addition))
    if embedded:
        rows = pa.concat_tables([row for _, row in embedded])
        change = add_items(reader, rows, bundle=embedder.bundle.fingerprint, on_conflict=on_conflict)
        for (sent, _), outcome in zip(embedded, change.outcomes, strict=True):
            _note(addition, sent, outcome, reader.gallery.name)
    addition.refused.sort(key=lambda one: one.sent.image)
    return addition


def _embedded(
    prepared: Sequence[tuple[SentImage, PreparedItem]], embedder: Embedder, addition: Addition
) -> Iterator[tuple[SentImage, pa.Table]]:
    vectors = embedder.infer([one.tensor for _, one in prepared])
    for (sent, one), vector in zip(prepared, vectors, strict=True):
        try:
            yield sent, as_rows([one], embedder.finish(vector[None]))
        except EmbeddingError as error:
            addition.refused.append(RefusedUpload(sent, error))


def _note(addition: Addition, sent: SentImage, outcome: Outcome, gallery: str) -> None:
    if outcome == "unchanged":
        addition.unchanged.append(sent)
    elif outcome == "skipped":
        addition.skipped.append(sent)
    elif outcome == "refused":
        addition.refused.append(RefusedUpload(sent, ItemExistsError(gallery, [sent.id])))
    else:
        item = AddedItem(sent.image, sent.id, sent.filename, replaced=outcome == "replaced")
        addition.added.append(item)
