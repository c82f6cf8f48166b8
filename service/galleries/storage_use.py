"""Storage: what the parts of a gallery take on the disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import func, select

from vicinal.indexer.disk import paths_below
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import attachments, documents
from vicinal.indexer.storage.files import size_of
from vicinal.service.answering.store import SearchStore

# Kinds of documents.
_OF_CALIBRATIONS = ("beside", "calibration", "check", "metric")


@dataclass(frozen=True)
class StorageUse:
    """Bytes of a gallery on the disk, by what they are for."""

    bytes: Annotated[int, Field(description="All of it.")]
    table_bytes: Annotated[int, Field(description="Items with their small pictures and embeddings.")]
    versions_bytes: Annotated[int, Field(description="Files that versions are searched by.")]
    calibrations_bytes: Annotated[int, Field(description="Records of calibrations.")]
    searches_bytes: Annotated[int, Field(description="Searches that are kept, and answers to them.")]
    other_bytes: int
    free_bytes: Annotated[int, Field(description="What is free on that disk.")]


def storage_use(gallery: Gallery) -> StorageUse:
    """Bytes of a gallery on the disk."""
    path = gallery.path
    table, versions, calibrations = (
        size_of(one for folder in folders for one in paths_below(path / folder))
        for folders in (("items.lance",), ("versions", "refiners"), ("calibrations",))
    )
    _, searches = SearchStore(path).readable
    # What was sent to be calibrated with lies in files until then.
    with state_of(gallery.path).reading() as rows:
        for kept in (documents, attachments):
            asked = rows.of(select(func.sum(func.length(kept.c.content))), kept)
            asked = asked.where(kept.c.kind.in_(_OF_CALIBRATIONS))
            calibrations += int(rows.connection.scalar(asked) or 0)
    # Files come and go meanwhile: the parts never take more than the whole.
    known = table + versions + calibrations + searches
    whole = max(known, size_of(paths_below(path)))
    return StorageUse(
        bytes=whole,
        table_bytes=table,
        versions_bytes=versions,
        calibrations_bytes=calibrations,
        searches_bytes=searches,
        other_bytes=whole - known,
        free_bytes=shutil.disk_usage(path).free,
    )
