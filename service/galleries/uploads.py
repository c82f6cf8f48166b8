"""Additions: images or embeddings that were sent become items; a bad one takes no other with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import ItemExistsError, ItemRefusedError, SpaceMismatchError
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata, checked_uri, readable
from vicinal.indexer.jobs.changes import OnConflict, Outcome, add_items
from vicinal.indexer.jobs.preparation import PreparedItem, as_rows, prepare_encoded, ready_rows
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.models.bundle import BundleManifest, space_manifest
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError, NoDirectionError
from vicinal.models.similarity import as_embeddings


@dataclass(frozen=True)
class Upload:
    """An image that came with a request."""

    encoded: bytes
    filename: str | None  # At the sender's
    id: str | None = None  # The digest of its file when None, so that two files of one name stay apart
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def item_id(self) -> str:
        """The id that the item gets."""
        return self.id or hashlib.sha256(self.encoded).hexdigest()[:32]


@dataclass(frozen=True)
class SentEmbedding:
    """A ready embedding that came with a request."""

    vector: npt.ArrayLike
    id: str
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    uri: str = ""


@dataclass(frozen=True)
class SentItem:
    """Image or embedding of a request, and the id that it has or would have got."""

    place: Annotated[int, Field(description="Its place in the request, from 0.")]
    id: str
    filename: str | None


@dataclass(frozen=True)
class AddedItem(SentItem):
    """An item that is in the gallery now."""

    replaced: Annotated[bool, Field(description="Whether there was an item of this id before.")]


@dataclass(frozen=True)
class RefusedUpload:
    """An image or embedding that is not in the gallery, and why."""

    sent: SentItem
    error: Exception


@dataclass
class Addition:
    """Results of the uploads, each in their order."""

    added: list[AddedItem] = field(default_factory=list)  # Of two with one id the later one is there
    unchanged: list[SentItem] = field(default_factory=list)  # There already under their id
    skipped: list[SentItem] = field(default_factory=list)  # Passed over, because another one has their id
    # Cannot be used, or their id belongs to another one
    refused: list[RefusedUpload] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        """Tell whether every one was refused."""
        return not (self.added or self.unchanged or self.skipped)

    def note(
        self, sent: SentItem, outcome: Outcome, gallery: str, what: Literal["image", "embedding"] = "image"
    ) -> None:
        """Note what became of an item in its gallery."""
        if outcome == "unchanged":
            self.unchanged.append(sent)
        elif outcome == "skipped":
            self.skipped.append(sent)
        elif outcome == "refused":
            self.refused.append(RefusedUpload(sent, ItemExistsError(gallery, [sent.id], what=what)))
        else:
            item = AddedItem(sent.place, sent.id, sent.filename, replaced=outcome == "replaced")
            self.added.append(item)


def add_uploads(
    reader: GalleryReader, uploads: Sequence[Upload], embedder: Embedder, *, conflict: OnConflict = "error"
) -> Addition:
    """Embed images and add them to a gallery in one change."""
    addition = Addition()
    prepared: list[tuple[SentItem, PreparedItem]] = []
    for place, upload in enumerate(uploads):
        sent = SentItem(place, upload.item_id, upload.filename)
        # Of a path the name alone: whoever indexes the items anew would read a file of the server there.
        name = Path(readable(Path(upload.filename or sent.id).name))
        try:
            label = _checked_label(sent.id, upload.label, upload.metadata)
            item = SourceItem(sent.id, name, label, upload.metadata)
            prepared.append((sent, prepare_encoded(item, upload.encoded, embedder)))
        except (ImageError, ItemRefusedError) as error:
            addition.refused.append(RefusedUpload(sent, error))
    embedded = list(_embedded(prepared, embedder, addition))
    if embedded:
        rows = pa.concat_tables([row for _, row in embedded])
        change = add_items(reader, rows, bundle=embedder.bundle.fingerprint, conflict=conflict)
        for (sent, _), outcome in zip(embedded, change.outcomes, strict=True):
            addition.note(sent, outcome, reader.gallery.name)
    addition.refused.sort(key=lambda one: one.sent.place)
    return addition


def add_sent_embeddings(
    reader: GalleryReader,
    embeddings: Sequence[SentEmbedding],
    space: BundleManifest,
    *,
    conflict: OnConflict = "error",
) -> Addition:
    """Add ready embeddings to a gallery in one change."""
    addition = Addition()
    usable: list[tuple[SentItem, SentEmbedding, FloatArray]] = []
    for place, one in enumerate(embeddings):
        sent = SentItem(place, one.id, None)
        try:
            label = _checked_label(one.id, one.label, one.metadata)
            checked_uri(one.uri, one.id)
            usable.append((sent, replace(one, label=label), _unit_length(one, space.dim)))
        except (EmbeddingError, ItemRefusedError) as error:
            addition.refused.append(RefusedUpload(sent, error))
    if usable:
        rows = ready_rows(_as_rows([one for _, one, _ in usable], [vector for *_, vector in usable]))
        change = add_items(reader, rows, bundle=space.fingerprint, conflict=conflict)
        for (sent, *_), outcome in zip(usable, change.outcomes, strict=True):
            addition.note(sent, outcome, reader.gallery.name, what="embedding")
    addition.refused.sort(key=lambda one: one.sent.place)
    return addition


def require_space(gallery: str, held: BundleManifest, name: str | None) -> None:
    """Refuse embeddings for a gallery of images, and those of another space."""
    given = None if name is None else space_manifest(name, held.dim)
    if not held.space or (given is not None and given.fingerprint != held.fingerprint):
        what = "ready embeddings" if given is None else given.in_words
        raise SpaceMismatchError(gallery, held.in_words, what)


def require_images(gallery: str, held: BundleManifest) -> None:
    """Refuse images for a gallery of ready embeddings."""
    if held.space:
        raise SpaceMismatchError(gallery, held.in_words, "images")


def _checked_label(item_id: str, label: str | None, metadata: dict[str, Any]) -> str | None:
    """The label of an item that can be kept and served."""
    checked_metadata(metadata, checked_id(item_id))
    return checked_label(label, item_id)


def _unit_length(sent: SentEmbedding, dim: int) -> FloatArray:
    try:
        return as_embeddings(sent.vector, dim)
    except NoDirectionError as error:
        raise EmbeddingError(f"the embedding of '{sent.id}' {error.what}: it points nowhere") from error
    except EmbeddingError as error:
        raise EmbeddingError(f"the embedding of '{sent.id}' cannot be used: {error}") from error


def _as_rows(sent: Sequence[SentEmbedding], vectors: Sequence[FloatArray]) -> ReadyRows:
    return ReadyRows(
        ids=pa.array([one.id for one in sent], pa.string()),
        labels=pa.array([one.label or None for one in sent], pa.string()),
        uris=pa.array([one.uri for one in sent], pa.string()),
        metadata=pa.array([json.dumps(one.metadata) for one in sent], pa.string()),
        embeddings=np.concatenate(vectors),
    )


def _embedded(
    prepared: Sequence[tuple[SentItem, PreparedItem]], embedder: Embedder, addition: Addition
) -> Iterator[tuple[SentItem, pa.Table]]:
    vectors = embedder.infer([one.tensor for _, one in prepared])
    for (sent, one), vector in zip(prepared, vectors, strict=True):
        try:
            yield sent, as_rows([one], embedder.finish(vector[None]))
        except EmbeddingError as error:
            addition.refused.append(RefusedUpload(sent, error))
