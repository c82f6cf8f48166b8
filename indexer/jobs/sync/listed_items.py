"""Listed items: what a source lists, looked at as far as a sync has to know."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import cache, partial

from vicinal.indexer.jobs.preparation import FileState, digest_of, digests_of_ready, listing_of
from vicinal.indexer.jobs.sync.plan import Description, ListedItem
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource

_ROWS = 16_384


def listed_files(
    items: Iterable[SourceItem], source: str | None, known: Collection[str] | None
) -> dict[str, ListedItem]:
    """The images of a source by id; no file is read before its digest is asked for.

    Args:
        source: The source; None for images that come from none.
        known: Ids that the gallery holds or held: the files of others are not looked at. None for all.
    """
    listed: dict[str, ListedItem] = {}
    for item in items:
        if item.id not in listed:
            state = FileState.of(item.path) if known is None or item.id in known else None
            size, modified_at = state or (None, None)
            metadata = json.dumps(item.metadata)
            listing = None if source is None else listing_of(item.label, metadata)
            description = Description(
                item.label, metadata, source, listing, str(item.path), size, modified_at
            )
            listed[item.id] = ListedItem(description, cache(partial(digest_of, item.path)))
    return listed


def listed_embeddings(embeddings: EmbeddingSource, source: str | None) -> dict[str, ListedItem]:
    """The ready embeddings of a source by id; all of them are read."""
    listed: dict[str, ListedItem] = {}
    for rows in embeddings.batches(_ROWS):
        columns = (rows.ids, rows.labels, rows.metadata, rows.uris)
        values = zip(*(one.to_pylist() for one in columns), digests_of_ready(rows), strict=True)
        for item_id, label, metadata, uri, digest in values:
            listing = None if source is None else listing_of(label, metadata)
            description = Description(label, metadata, source, listing, uri)
            listed[item_id] = ListedItem(description, partial(bytes, digest))
    return listed
