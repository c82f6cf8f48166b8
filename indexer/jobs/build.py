"""Index job: from a source of images to a new active version of a gallery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.graph.vector_index import check_factory
from vicinal.indexer.hygiene import Hygiene, examine
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, Failure, RunOptions
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder

__all__ = ["BuildProgress", "BuildResult", "StageClock", "build_gallery", "record_build"]

OnProgress = Callable[["BuildProgress"], None]


@dataclass(frozen=True)
class BuildProgress:
    """How far an index job is.

    Attributes:
        stage: `embed`, then `neighbors`, then `publish`.
        done: Finished units of the stage; failures count as finished.
        total: Units of the stage.
        failed: Images that could not be used so far.
    """

    stage: Literal["embed", "neighbors", "publish"]
    done: int
    total: int
    failed: int = 0


@dataclass(frozen=True)
class BuildResult:
    """What an index job made.

    Attributes:
        seconds: Seconds by stage.
        failures: Images left out.
        hygiene: Duplicates and thin classes, which spoil a calibration.
    """

    version: int
    n_items: int
    n_labels: int
    index: str
    provider: str
    seconds: dict[str, float]
    failures: list[Failure] = field(default_factory=list)
    hygiene: Hygiene = field(default_factory=Hygiene)


def build_gallery(
    gallery: Gallery,
    items: Sequence[SourceItem],
    embedder: Embedder,
    *,
    index: str = "auto",
    max_failures: int | None = None,
    workers: int = 2,
    on_progress: OnProgress | None = None,
) -> BuildResult:
    """Embed every item and publish the result as the gallery's active version.

    Searches go on in the version that was active before; it stays when the job fails.

    Args:
        gallery: The gallery, new or existing.
        items: What to index; of two items with one id the first is kept.
        embedder: Embedder of the bundle to use.
        index: Factory string of the vector index, or `auto`.
        max_failures: Give up when more images than this cannot be used; None goes on.
        workers: Threads that decode beside the network.
        on_progress: Called after every batch.

    Raises:
        BuildError: Too many failures, or no image could be used.
        GalleryError: Faiss does not know the factory string, another job is writing, or the disk refuses.
    """
    check_factory(index, embedder.bundle.dim)
    report = on_progress or (lambda _: None)
    clock = StageClock()
    with gallery.writing():
        run = EmbeddingRun(
            _Into(gallery, embedder), embedder, RunOptions(max_failures=max_failures, workers=workers)
        )
        run.over(items, lambda done, total, failed: report(BuildProgress("embed", done, total, failed)))
        clock.lap("embed")
        graph = build_neighbor_graph(
            gallery.pending_embeddings(),
            on_progress=lambda done, total: report(BuildProgress("neighbors", done, total)),
        )
        clock.lap("neighbors")
        report(BuildProgress("publish", 0, 1, len(run.failures)))
        snapshot = gallery.publish(graph, index=index)
        result = record_build(gallery, snapshot, clock, failures=run.failures, provider=embedder.provider)
        report(BuildProgress("publish", 1, 1, len(run.failures)))
    return result


class _Into:
    """Commits rows to a gallery that is held for writing."""

    def __init__(self, gallery: Gallery, embedder: Embedder) -> None:
        self.gallery, self.bundle, self.started = gallery, embedder.bundle, False

    def __call__(self, rows: pa.Table) -> None:
        if self.started:
            self.gallery.append(rows)
        else:
            self.gallery.start(rows, bundle=self.bundle.fingerprint, bundle_name=self.bundle.name)
            self.started = True


def record_build(
    gallery: Gallery,
    snapshot: Snapshot,
    clock: StageClock,
    *,
    failures: list[Failure],
    provider: str,
    job: str | None = None,
) -> BuildResult:
    """Examine a version that was just made, and keep the report of it.

    Args:
        gallery: The gallery.
        snapshot: The version.
        clock: Stopped for the last time here, as `publish`.
        failures: Images left out.
        provider: Execution provider that embedded the others.
        job: Name of the job that made it.
    """
    hygiene = _examine(gallery, snapshot)
    clock.lap("publish")
    result = BuildResult(
        version=snapshot.manifest.version,
        n_items=snapshot.manifest.n_items,
        n_labels=snapshot.manifest.n_labels,
        index=snapshot.manifest.index,
        provider=provider,
        seconds=clock.laps,
        failures=failures,
        hygiene=hygiene,
    )
    gallery.reports.save(result.version, {**_as_report(result), "job": job})
    return result


class StageClock:
    """Seconds by stage; a stage ends with its lap.

    Attributes:
        laps: Seconds by stage so far.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.monotonic()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now


def _examine(gallery: Gallery, snapshot: Snapshot) -> Hygiene:
    columns = gallery.columns(snapshot.manifest.version, ["id", "label", "content_sha256", "signature"])
    signatures = columns["signature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return examine(
        ids=columns["id"].to_pylist(),
        labels=columns["label"].to_pylist(),
        contents=columns["content_sha256"].to_pylist(),
        signatures=signatures.reshape(len(snapshot), -1),
        neighbor_ids=snapshot.neighbor_ids,
        neighbor_similarities=snapshot.neighbor_similarities,
    )


def _as_report(result: BuildResult) -> dict[str, object]:
    report: dict[str, object] = {"kind": "index", **vars(result)}
    report["failures"] = [vars(failure) for failure in result.failures]
    report["hygiene"] = vars(result.hygiene)
    report["created_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    return report
