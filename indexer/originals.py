"""Originals: files that items were made of, as long as they lie where they lay and are the same."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

from vicinal.indexer.errors import ItemNotFoundError, OriginalNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.view import GalleryView


def read_original(gallery: Gallery, view: GalleryView, item_id: str, *, most: int) -> bytes:
    """Encoded image that an item was made of, with the checksum of what was indexed: nothing else is given.

    Raises:
        ItemNotFoundError: There is no such item.
        OriginalNotFoundError: Its file never was, has gone, was changed, or is larger than `most` bytes.
    """
    position = view.positions([item_id])
    if position[0] < 0:
        raise ItemNotFoundError(gallery.name, item_id)
    columns = ["uri", "content_sha256", "signature"]
    (row,) = gallery.table.rows(view.revision, view.sequences(position), columns).to_pylist()
    # What came as an embedding has no image, whatever its address says.
    content = None if row["signature"] is None else _read(Path(row["uri"] or ""), most)
    if content is None or sha256(content).digest() != row["content_sha256"]:
        raise OriginalNotFoundError(gallery.name, item_id)
    return content


def _read(path: Path, most: int) -> bytes | None:
    """Content of a plain file at an absolute path; None where there is none, or it is too large."""
    if not path.is_absolute():
        return None
    try:
        # A pipe would be waited for, and a device may do anything.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(opened, "rb") as stream:
            content = stream.read(most + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= most else None
