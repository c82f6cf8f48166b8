"""Labelled queries, of the gallery itself (leave-one-out), of images, or of embeddings, and reading them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.calibration import CalibrationError, OneLabelError, UnlabelledGalleryError
from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import Bytes, FloatArray, Ints, Objects
from vicinal.indexer.jobs.embedding_run import Failure, failed_rows
from vicinal.indexer.jobs.preparation import PreparedItem, prepare_item
from vicinal.indexer.sources import (
    EmbeddingSource,
    Refuse,
    SourceItem,
    SourceOptions,
    open_source,
    refuse_none,
)
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.runtime import usable_processors
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.item_groups import value_text

# Ready embeddings that are read at once.
_ROWS = 8192
# Files that are read at a time, at least: those of other machines are mostly waited for.
_READERS = 8


@dataclass(frozen=True)
class LabelledQueries:
    """Queries with their right answers, (n, d) float32, L2-normalized; from outside `positions` are None.
    `visits` name what was taken together, with items too. `signatures`, (n, 768), are pictures at 16 x 16
    pixels, None where there are none; `left_out` are ascending positions of items that are not searched.
    """

    embeddings: FloatArray
    labels: Objects
    positions: Ints | None = None
    ids: Objects | None = None
    visits: Objects | None = None
    signatures: Bytes | None = None
    left_out: Objects | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def leave_one_out(cls, snapshot: Snapshot, visits: Visits | None = None) -> LabelledQueries:
        """Every labelled item of a gallery as a query."""
        positions = np.flatnonzero(np.array([label is not None for label in snapshot.labels], dtype=bool))
        ids = np.asarray(snapshot.item_table["id"].to_numpy(zero_copy_only=False), dtype=object)
        return cls(
            np.asarray(snapshot.embeddings[positions]),
            snapshot.labels[positions],
            positions,
            ids[positions],
            None if visits is None else visits.names[positions],
        )

    def sample(self, n: int, seed: int) -> LabelledQueries:
        """At most n of the queries, drawn without replacement."""
        if n >= len(self.labels):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self.labels), n, replace=False)))

    def take(self, rows: Ints) -> LabelledQueries:
        """Some of the queries, in the order of their rows."""
        columns = {name: one for name, one in vars(self).items() if isinstance(one, np.ndarray)}
        kept: dict[str, Any] = {name: one[rows] for name, one in columns.items()}
        return replace(self, **kept)


def require_labels(
    gallery: Iterable[str | None],
    queries: Iterable[str] | None,
    *,
    name: str = "the gallery",
    has_photos: bool = True,
) -> None:
    """Refuse labels that make no negative pairs; those of queries are None where they are not known yet."""
    known = set(gallery) - {None}
    if not known and not has_photos:
        raise UnlabelledGalleryError(
            f"{name} has no labels: ", advise("index its embeddings with labels, by {label_column}")
        )
    if not known:
        raise UnlabelledGalleryError(
            f"{name} has no labels: index it from class subfolders or a source with a label column, or ",
            advise("answer questions about its photos by {label()}"),
        )
    if queries is not None and len(known | set(queries)) < 2:
        raise OneLabelError(
            f"all items of {name} carry one label, so that there are no negative pairs: add items of other "
            "labels"
        )


@dataclass
class QueryReading:
    """Queries that were read: all (`total`), failures, and `rows`, L2-normalized, of the others."""

    total: int
    failures: list[Failure] = field(default_factory=list)
    rows: list[FloatArray] = field(default_factory=list)
    items: list[SourceItem] = field(default_factory=list)
    signatures: list[Bytes] = field(default_factory=list)
    visit_column: str | None = None

    def fail(self, item: SourceItem, reason: str) -> None:
        """Note one that cannot be used."""
        self.failures.append(Failure.of(item, reason))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of queries that were left out, where some were."""
        n = len(self.failures)
        return (f"{n:,} of {self.total:,} queries were left out: they cannot be used",) if n else ()

    def labelled(self) -> LabelledQueries:
        """The queries."""
        if not self.rows:
            first = f"; the first: {self.failures[0].reason}" if self.failures else ""
            raise CalibrationError(f"none of {self.total} queries can be used{first}")
        visits = [
            value_text(item.metadata.get(self.visit_column)) for item in self.items if self.visit_column
        ]
        return LabelledQueries(
            np.concatenate(self.rows),
            np.array([item.label for item in self.items], dtype=object),
            ids=np.array([item.id for item in self.items], dtype=object),
            visits=np.array(visits, dtype=object) if self.visit_column else None,
            signatures=np.stack(self.signatures) if self.signatures else None,
            warnings=self.warnings,
        )


def read_queries(
    source: Path | str,
    embedder: Embedder,
    *,
    visit_column: str | None = None,
    refuse: Refuse = refuse_none,
    on_progress: OnProgress = no_progress,
    failures: list[Failure] | None = None,
    needs_labels: bool = True,
    options: SourceOptions | None = None,
) -> QueryReading:
    """Read labelled queries, of a source or of ready embeddings; images that cannot be used are listed."""
    opened = open_source(
        source,
        options,
        expects_embeddings=bool(embedder.bundle.manifest.space),
        needs_ids=False,
        refuse=refuse,
    )
    n = len(opened if isinstance(opened, EmbeddingSource) else opened.items)
    reading = QueryReading(n, [] if failures is None else failures, visit_column=visit_column)
    if isinstance(opened, EmbeddingSource):
        _read_embeddings(opened, embedder.bundle.dim, reading)
        if needs_labels:
            _check_labels(source, reading.items, "give each row of the label column one")
        on_progress("embed", n, n)
        return reading
    items = opened.items
    if needs_labels:
        advice = "lay them in a folder a label, or say where labels are by {label_from} or {label_column}"
        _check_labels(source, [one for one in items if one.problem is None], advice)
    # A GPU may take fewer at a time from some batch on.
    size = embedder.batch_size
    with ThreadPoolExecutor(max(_READERS, usable_processors()), thread_name_prefix="queries") as pool:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            usable = []
            for item in batch:
                if reason := item.problem or refuse(item.path):
                    reading.fail(item, reason)
                else:
                    usable.append((item, pool.submit(prepare_item, item, embedder)))
            _embed(list(_prepared(usable, reading)), embedder, reading)
            on_progress("embed", start + len(batch), n)
    return reading


def _prepared(
    items: Iterable[tuple[SourceItem, Future[PreparedItem]]], reading: QueryReading
) -> Iterator[PreparedItem]:
    for item, prepared in items:
        try:
            yield prepared.result()
        except (ImageError, OSError) as error:
            reading.fail(item, str(error))


def _embed(images: Sequence[PreparedItem], embedder: Embedder, reading: QueryReading) -> None:
    """Embed what can be used; one without direction takes no other with it."""
    for one, raw in zip(images, embedder.infer([one.tensor for one in images]), strict=True):
        try:
            reading.rows.append(embedder.finish(raw[None]))
        except EmbeddingError as error:
            reading.fail(one.item, str(error))
            continue
        reading.items.append(one.item)
        reading.signatures.append(one.columns["signature"])


def _check_labels(source: Path | str, items: Sequence[SourceItem], advice: str) -> None:
    if unlabelled := sum(not item.label for item in items):
        said = f"{unlabelled} of {len(items)} queries in '{source}' have no label: "
        raise CalibrationError(said, advise(advice))


def _read_embeddings(source: EmbeddingSource, dim: int, reading: QueryReading) -> None:
    if source.dim != dim:
        raise EmbeddingError(f"expected {dim} numbers an embedding, got {source.dim} in '{source.path.name}'")
    for rows in source.batches(_ROWS):
        reading.rows.append(rows.embeddings)
        columns = (rows.ids, rows.labels, rows.metadata)
        for item_id, label, metadata in zip(*(one.to_pylist() for one in columns), strict=True):
            reading.items.append(SourceItem(item_id, source.path, label, json.loads(metadata)))
    reading.failures += failed_rows(source)
