"""Report examples: pairs of query and item that were decided wrongly, with small pictures of the items."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from PIL import Image

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.gallery import Gallery
from vicinal.service.measuring.records.curves import Example
from vicinal.service.reports.report import ReportBody

_MOST_EXAMPLES = 8
# Of all data URIs together.
_MOST_BYTES = 300_000
_SIDE = 128
_QUALITY = 78


class ShownExample(NamedTuple):
    """An example with the pictures of its query and its item, as data URIs; None without one."""

    example: Example
    query_picture: str | None
    item_picture: str | None


def worst_examples(report: ReportBody, gallery: Gallery) -> tuple[list[ShownExample], list[ShownExample]]:
    """The worst false accepts and the worst false rejects of a calibration, as far as they are kept."""
    details, record = report.details, report.record
    if details is None:
        return [], []
    accepts, rejects = details.false_accepts[:_MOST_EXAMPLES], details.false_rejects[:_MOST_EXAMPLES]
    # In turns, so that both kinds get pictures.
    turns = [one for both in zip_longest(accepts, rejects) for one in both if one is not None]
    # Queries from outside are no items, whatever they are called.
    is_item = record.source == "leave_one_out"
    ids = [item_id for one in turns for item_id in (one.query if is_item else None, one.item)]
    try:
        pictures = embed_thumbnails(gallery, gallery.pointer.revision_of(record.version), ids)
    except IndexerError:
        pictures = [None] * len(ids)
    shown = {
        id(one): ShownExample(one, query, item)
        for one, query, item in zip(turns, pictures[::2], pictures[1::2], strict=True)
    }
    return [shown[id(one)] for one in accepts], [shown[id(one)] for one in rejects]


def embed_thumbnails(
    gallery: Gallery, revision: int, item_ids: Sequence[str | None], *, most_bytes: int = _MOST_BYTES
) -> list[str | None]:
    """A data URI for each item, the most important first; None without a picture, or any room."""
    known: dict[str, str | None] = {}
    found: list[str | None] = []
    left = most_bytes
    for item_id in item_ids:
        if item_id is not None and item_id not in known:
            known[item_id] = _uri(gallery, revision, item_id)
        uri = None if item_id is None else known[item_id]
        found.append(uri if uri is not None and len(uri) <= left else None)
        left -= len(found[-1] or "")
    return found


def _uri(gallery: Gallery, revision: int, item_id: str) -> str | None:
    try:
        stored = gallery.thumbnail(revision, item_id)
    except IndexerError:
        return None
    stream = io.BytesIO()
    with Image.open(io.BytesIO(stored)) as image:
        image.thumbnail((_SIDE, _SIDE))
        image.convert("RGB").save(stream, "JPEG", quality=_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
