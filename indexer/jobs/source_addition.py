"""Source addition: images or ready embeddings of a source become items while the gallery is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from vicinal.indexer.errors import BuildError, ItemExistsError
from vicinal.indexer.jobs.changes import Change, OnConflict, Outcome, add_items, digests_of, outcomes_of
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, Failure, RunOptions, failed_rows
from vicinal.indexer.jobs.preparation import digest_of, ready_rows, stated_by, with_columns
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.bundle import BundleManifest
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress

# Rows that are added together: neighbor lists are made for them while other changes wait.
_ROWS_PER_COMMIT = 256


@dataclass
class LiveAddition:
    """Outcome of the addition of a source."""

    n_added: int = 0
    n_replaced: int = 0  # Took the place of one with the same id
    n_skipped: int = 0  # Passed over, because another one has their id
    n_unchanged: int = 0  # There already under their id
    failures: list[Failure] = field(default_factory=list)

    def count(self, outcomes: Sequence[Outcome]) -> None:
        """Count what became of some of them."""
        self.n_added += outcomes.count("added")
        self.n_replaced += outcomes.count("replaced")
        self.n_skipped += outcomes.count("skipped")
        self.n_unchanged += outcomes.count("unchanged")

    def note(self, rows: pa.Table, change: Change, what: str = "image") -> None:
        """Count what became of rows; those whose ids were taken meanwhile are failures."""
        self.count(change.outcomes)
        for row, outcome in zip(rows.select(["id", "uri"]).to_pylist(), change.outcomes, strict=True):
            if outcome == "refused":
                self.failures.append(Failure(row["id"], row["uri"], f"another {what} took its id meanwhile"))


def add_source(
    reader: GalleryReader,
    items: Sequence[SourceItem],
    embedder: Embedder,
    *,
    source: str | None = None,
    label: str | None = None,
    conflict: OnConflict = "error",
    options: RunOptions | None = None,
    on_progress: OnProgress = no_progress,
) -> LiveAddition:
    """Add images of a source, some hundred a commit; what is committed is searched at once. The same call
    completes a run that was broken off. Where `conflict` is `error` nothing is added when an id belongs to
    another image; an id that is taken only while the run lasts makes its image a failure.
    """
    done, left = LiveAddition(), list(items)
    if conflict != "replace":
        usable = [item.id for item in items if item.problem is None]
        held = digests_of(reader.gallery, reader.view(), usable)
        taken = [item for item in items if item.id in held]
        ids, digests = [one.id for one in taken], [digest_of(one.path) for one in taken]
        outcomes = outcomes_of(ids, digests, held, conflict)
        _require_free(reader, ids, outcomes)
        done.count(outcomes)
        left = [item for item in items if item.id not in held]

    def commit(rows: pa.Table) -> None:
        rows = _labelled(stated_by(rows, source), label)
        done.note(rows, add_items(reader, rows, bundle=embedder.bundle.fingerprint, conflict=conflict))

    options = options or RunOptions(rows_per_commit=_ROWS_PER_COMMIT)
    # What is there already was usable: that nothing else is, is then no failure.
    run = EmbeddingRun(commit, embedder, replace(options, resumes=len(left) < len(items)))
    run.over(left, on_progress)
    done.failures = run.failures + done.failures
    return done


def add_embeddings(
    reader: GalleryReader,
    source: EmbeddingSource,
    space: BundleManifest,
    *,
    name: str | None = None,
    conflict: OnConflict = "error",
    label: str | None = None,
    on_progress: OnProgress = no_progress,
) -> LiveAddition:
    """Add ready embeddings as `add_source` adds images; every row is checked before the first is added."""
    held = digests_of(reader.gallery, reader.view(), source.ids.to_pylist())
    ids: list[str] = []
    digests: list[bytes] = []
    n_usable = n_read = 0
    for rows in _batches(source, name, label):
        n_usable += len(rows)
        taken = rows.filter(pa.array([item_id in held for item_id in rows["id"].to_pylist()], pa.bool_()))
        ids += taken["id"].to_pylist()
        digests += taken["content_sha256"].to_pylist()
    _require_free(reader, ids, outcomes_of(ids, digests, held, conflict), "embedding")
    done = LiveAddition(failures=failed_rows(source))
    if not n_usable:
        raise BuildError(
            f"none of {len(source)} rows could be used, the first because {done.failures[0].reason}"
        )
    for rows in _batches(source, name, label):
        done.note(rows, add_items(reader, rows, bundle=space.fingerprint, conflict=conflict), "embedding")
        n_read += len(rows)
        on_progress("embed", n_read, n_usable)
    return done


def _batches(source: EmbeddingSource, name: str | None, label: str | None) -> Iterator[pa.Table]:
    for rows in source.batches(_ROWS_PER_COMMIT):
        yield _labelled(stated_by(ready_rows(rows), name), label)


def _labelled(rows: pa.Table, label: str | None) -> pa.Table:
    """Rows with a label by hand; what their source says stays beside it."""
    return rows if label is None else with_columns(rows, label=pa.array([label] * len(rows), pa.string()))


def _require_free(
    reader: GalleryReader,
    ids: Sequence[str],
    outcomes: Sequence[Outcome],
    what: Literal["image", "embedding"] = "image",
) -> None:
    """Refuse all where one has the id of another."""
    refused = [item_id for item_id, outcome in zip(ids, outcomes, strict=True) if outcome == "refused"]
    if refused:
        raise ItemExistsError(reader.gallery.name, refused, what=what)
