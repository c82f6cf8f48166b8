"""Queries of a comparison: the same for every version, embedded by the bundle of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import Ints
from vicinal.indexer.errors import SourceError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.sources import Refuse, SourceOptions, holds_embeddings
from vicinal.models.progress import OnProgress
from vicinal.service.comparing.record import ItemCounts
from vicinal.service.comparing.variants import OpenedVariant
from vicinal.service.measuring.queries import LabelledQueries, QueryReading, read_queries
from vicinal.service.measuring.visits import Visits

_SCHEMA = pa.schema([("id", pa.string()), ("content_sha256", pa.binary()), ("label", pa.string())])


def common_items(versions: Sequence[OpenedVariant], visits: Sequence[Visits | None]) -> list[LabelledQueries]:
    """Labelled items with the same picture and label in all versions, as queries that leave them out."""
    tables = [_items(one.gallery, one.snapshot.manifest.revision) for one in versions]
    alike = reduce(lambda left, right: left.join(right, keys=_SCHEMA.names, join_type="inner"), tables)
    labelled = alike.filter(pc.is_valid(alike["label"])).sort_by("id")
    found = []
    for one, own in zip(versions, visits, strict=True):
        known = one.snapshot.item_table["id"].combine_chunks()
        positions = np.asarray(pc.index_in(labelled["id"].cast(known.type), known), dtype=np.int64)
        queries = LabelledQueries.leave_one_out(one.snapshot, own)
        found.append(queries.take(np.searchsorted(_positions(queries), positions)))
    return found


def read_common(
    source: Path | str,
    versions: Sequence[OpenedVariant],
    *,
    visit_column: str | None,
    needs_labels: bool,
    refuse: Refuse,
    on_stage: OnProgress,
    options: SourceOptions | None = None,
) -> tuple[list[LabelledQueries], str | None]:
    """Queries from outside that every bundle can embed, for each version, and how many cannot be used."""
    readings: dict[str, QueryReading] = {}
    for one in versions:
        served = one.served
        if served is None:
            raise SourceError(one.problem or "its bundle is not here")
        if served.bundle.fingerprint in readings:
            continue
        if readings and holds_embeddings(source, options):
            raise SourceError(
                f"'{Path(source).name}' holds embeddings of one bundle: give pictures for several"
            )

        readings[served.bundle.fingerprint] = read_queries(
            source,
            served.embedder,
            visit_column=visit_column,
            refuse=refuse,
            on_progress=on_stage,
            needs_labels=needs_labels,
            options=options,
        )
    usable = set.intersection(*({item.id for item in one.items} for one in readings.values()))
    found = []
    for one in versions:
        reading = readings[one.snapshot.manifest.bundle]
        rows = np.flatnonzero([item.id in usable for item in reading.items])
        found.append(reading.labelled().take(rows))
    n_refused = reading.total - len(usable)
    return (
        found,
        f"{n_refused} of {reading.total} queries in '{Path(source).name}' cannot be used"
        if n_refused
        else None,
    )


def count_items(present: OpenedVariant, other: OpenedVariant) -> tuple[ItemCounts, bool]:
    """Items that two versions share as they would be searched, and whether the present one changed live."""
    activation = present.gallery.activation
    known = {} if activation is None else activation.known_revisions
    built = [one.snapshot.manifest.revision for one in (present, other)]
    revisions = [
        known.get(one.version, revision) for one, revision in zip((present, other), built, strict=True)
    ]
    before, after = (_items(present.gallery, revision) for revision in revisions)
    rows = before.join(after, keys="id", join_type="inner", right_suffix="_other")
    counts = ItemCounts(
        both=len(rows),
        only_present=len(before) - len(rows),
        only_other=len(after) - len(rows),
        other_image=_n_different(rows, "content_sha256"),
        other_label=_n_different(rows, "label"),
    )
    return counts, revisions[0] != built[0]


def _items(gallery: Gallery, revision: int) -> pa.Table:
    # Metadata of a schema says nothing about its rows, and joins want equal ones.
    return gallery.table.columns(revision, _SCHEMA.names).replace_schema_metadata(None).cast(_SCHEMA)


def _n_different(rows: pa.Table, column: str) -> int:
    pairs = zip(rows[column].to_pylist(), rows[f"{column}_other"].to_pylist(), strict=True)
    return sum(one != other for one, other in pairs)


def _positions(queries: LabelledQueries) -> Ints:
    return np.empty(0, np.int64) if queries.positions is None else queries.positions
