"""Held rows and listed items: what a gallery holds, and what a source lists, as far as a sync has to know."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import Ints
from vicinal.indexer.errors import SourceError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.preparation import (
    FileState,
    digest_of,
    digests_of_ready,
    listing_of,
    no_rows,
    with_columns,
)
from vicinal.indexer.jobs.sync.plan import Description, HeldItem, ListedItem
from vicinal.indexer.sources import SourceAccess, SourceItem, file_at
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.storage.active_pointer import Activation

_BATCH = 4096
_READY_BATCH = 16_384
# What tells of an item's file; a file that was just read tells it better.
_FILE = ("uri", "file_size", "modified_at")
# What tells of an item whatever its file is.
STATED = ("label", "metadata", "source", "listing")
_DESCRIBED = (*STATED, *_FILE)


class HeldRows:
    """The items of one state of a gallery, in gallery order."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @classmethod
    def of(cls, gallery: Gallery, active: Activation | None) -> HeldRows:
        """Rows that are searched; none where nothing is."""
        if active is None:
            return cls(no_rows(1).append_column("sequence", pa.array([], pa.int64())))
        rows = gallery.table.columns(active.revision, ["id", "sequence", "content_sha256", *_DESCRIBED])
        metadata, modified_at = rows["metadata"].cast(pa.string()), rows["modified_at"].cast(pa.int64())
        return cls(with_columns(rows, metadata=metadata, modified_at=modified_at))

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, ids: Collection[str]) -> HeldRows:
        """The items of some ids."""
        return HeldRows(self.rows.filter(pc.is_in(self.rows["id"], pa.array(list(ids), pa.string()))))

    def but(self, ids: Collection[str]) -> HeldRows:
        """The items of all other ids."""
        is_one = pc.is_in(self.rows["id"], pa.array(list(ids), pa.string()))
        return HeldRows(self.rows.filter(pc.invert(is_one)))

    def at(self, sequences: Ints) -> HeldRows:
        """The items of some sequences."""
        return HeldRows(self.rows.filter(pc.is_in(self.rows["sequence"], pa.array(sequences, pa.int64()))))

    def of_source(self, source: str) -> HeldRows:
        """The items of a source."""
        return HeldRows(self.rows.filter(pc.equal(self.rows["source"], source)))

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return list(self.rows["id"].to_pylist())

    @property
    def contents(self) -> set[bytes]:
        """Digests of their files or of their ready embeddings."""
        return set(self.rows["content_sha256"].to_pylist())

    @property
    def sequences(self) -> Ints:
        """Their sequences, ascending."""
        return self.rows["sequence"].to_numpy()

    def items(self) -> dict[str, HeldItem]:
        """The items by id."""
        described = zip(*(self.rows[name].to_pylist() for name in _DESCRIBED), strict=True)
        digests = self.rows["content_sha256"].to_pylist()
        return {
            item_id: HeldItem(Description(**dict(zip(_DESCRIBED, values, strict=True))), digest)
            for item_id, digest, values in zip(self.ids, digests, described, strict=True)
        }


def copied_rows(
    gallery: Gallery, active: Activation, sequences: Ints, described: Mapping[str, Description]
) -> Iterator[pa.Table]:
    """Rows of a gallery, some thousands at a time, as they are staged."""
    gallery.table.check(active.revision)
    with gallery.table.reading(active.revision) as table:
        numbers = table.to_table(columns=["sequence"], scan_in_order=True)["sequence"].to_numpy()
        order = np.argsort(numbers)
        places = order[np.searchsorted(numbers, sequences, sorter=order)]
        for start in range(0, len(places), _BATCH):
            rows = table.take(places[start : start + _BATCH].tolist(), columns=no_rows(1).schema.names)
            rows = with_columns(rows, metadata=rows["metadata"].cast(pa.string()))
            yield redescribed(rows.replace_schema_metadata(None), described, _DESCRIBED)


def items_of(rows: pa.Table, access: SourceAccess) -> Iterator[SourceItem]:
    """Rows of a gallery as items of a source, with files where they were."""
    for row in rows.select(["id", "uri", "label", "metadata"]).to_pylist():
        metadata = json.loads(row["metadata"] or "{}")
        try:
            file, problem = file_at(row["uri"], access), None
        except SourceError as error:
            file, problem = Path(row["uri"]), str(error)
        yield SourceItem(row["id"], file, row["label"], metadata, problem)


def redescribed(rows: pa.Table, described: Mapping[str, Description], names: tuple[str, ...]) -> pa.Table:
    """Rows, some of which get other descriptions."""
    ids = rows["id"].to_pylist()
    if not any(item_id in described for item_id in ids):
        return rows
    for name in names:
        column = rows[name]
        # Times as numbers: those of `datetime` have no zone that every machine knows.
        kind = pa.int64() if pa.types.is_timestamp(column.type) else column.type
        values = [
            getattr(described[item_id], name) if item_id in described else value
            for item_id, value in zip(ids, column.cast(kind).to_pylist(), strict=True)
        ]
        rows = with_columns(rows, **{name: pa.array(values, kind).cast(column.type)})
    return rows


def listed_files(
    items: Iterable[SourceItem], source: str | None, known: Collection[str] | None
) -> dict[str, ListedItem]:
    """Images of a source by id; of those not `known`, the files are not looked at; None for all."""
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
    for rows in embeddings.batches(_READY_BATCH):
        columns = (rows.ids, rows.labels, rows.metadata, rows.uris)
        values = zip(*(one.to_pylist() for one in columns), digests_of_ready(rows), strict=True)
        for item_id, label, metadata, uri, digest in values:
            listing = None if source is None else listing_of(label, metadata)
            description = Description(label, metadata, source, listing, uri)
            listed[item_id] = ListedItem(description, partial(bytes, digest))
    return listed
