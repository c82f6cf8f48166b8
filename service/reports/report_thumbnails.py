"""Report thumbnails: small pictures of the items that examples name, as they were when they were scored."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.gallery import Gallery

__all__ = ["MOST_BYTES", "embed_thumbnails"]

# Of all data URIs together.
MOST_BYTES = 300_000
_SIDE = 128
_QUALITY = 78


def embed_thumbnails(
    gallery: Gallery, version: int, item_ids: Sequence[str | None], *, most_bytes: int = MOST_BYTES
) -> list[str | None]:
    """A data URI for each item; None where there is no picture, or no room is left.

    Args:
        gallery: The gallery.
        version: The version that was calibrated on.
        item_ids: Whose pictures, the most important first; None for what is no item.
        most_bytes: Most characters of all URIs together.
    """
    known: dict[str, str | None] = {}
    found: list[str | None] = []
    left = most_bytes
    for item_id in item_ids:
        if item_id is not None and item_id not in known:
            known[item_id] = _uri(gallery, version, item_id)
        uri = None if item_id is None else known[item_id]
        found.append(uri if uri is not None and len(uri) <= left else None)
        left -= len(found[-1] or "")
    return found


def _uri(gallery: Gallery, version: int, item_id: str) -> str | None:
    try:
        stored = gallery.thumbnail(version, item_id)
    except IndexerError:
        return None
    stream = io.BytesIO()
    with Image.open(io.BytesIO(stored)) as image:
        image.thumbnail((_SIDE, _SIDE))
        image.convert("RGB").save(stream, "JPEG", quality=_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
