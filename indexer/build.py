"""Index job: from a source of images to a new active version of a gallery."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from indexer.errors import BuildError
from indexer.gallery import Gallery
from indexer.hygiene import SIGNATURE_SIDE, Hygiene, examine
from indexer.neighbor_graph import build_neighbor_graph
from indexer.snapshot import Snapshot
from indexer.sources import SourceItem
from models.embedder import Embedder
from models.errors import ImageError
from models.similarity import FloatArray

__all__ = ["BuildProgress", "BuildResult", "Failure", "build_gallery", "make_thumbnail"]

THUMBNAIL_SIDE = 256
# Rows a commit: large enough that Lance's files stay few, small enough that little is lost.
_ROWS_PER_COMMIT = 2048

OnProgress = Callable[["BuildProgress"], None]


@dataclass(frozen=True)
class Failure:
    """An image that is not in the gallery, and why."""

    id: str
    path: str
    reason: str


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


@dataclass(frozen=True)
class _Prepared:
    item: SourceItem
    tensor: FloatArray
    thumbnail: bytes
    content_sha256: bytes
    signature: npt.NDArray[np.uint8]


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
        GalleryError: Another job is writing, or the disk refuses.
    """
    report = on_progress or (lambda _: None)
    with gallery.writing():
        clock = _Clock()
        run = _EmbedRun(gallery, embedder, max_failures, workers, report)
        run.over(items)
        clock.lap("embed")
        embeddings = gallery.pending_embeddings()
        n_items = len(embeddings)
        graph = build_neighbor_graph(
            embeddings, on_progress=lambda done, total: report(BuildProgress("neighbors", done, total))
        )
        clock.lap("neighbors")
        report(BuildProgress("publish", 0, 1, len(run.failures)))
        snapshot = gallery.publish(graph, index=index)
        hygiene = _examine(gallery, snapshot)
        clock.lap("publish")
        report(BuildProgress("publish", 1, 1, len(run.failures)))
        result = BuildResult(
            version=snapshot.manifest.version,
            n_items=n_items,
            n_labels=snapshot.manifest.n_labels,
            index=snapshot.manifest.index,
            provider=embedder.provider,
            seconds=clock.laps,
            failures=run.failures,
            hygiene=hygiene,
        )
        gallery.save_report(result.version, _as_report(result))
        return result


def make_thumbnail(image: Image.Image) -> bytes:
    """JPEG of at most `THUMBNAIL_SIDE` pixels a side."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=85)
    return stream.getvalue()


class _EmbedRun:
    """Decodes in threads while the network runs, and commits finished rows."""

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        max_failures: int | None,
        workers: int,
        report: OnProgress,
    ) -> None:
        self.gallery = gallery
        self.embedder = embedder
        self.max_failures = max_failures
        self.workers = workers
        self.report = report
        self.failures: list[Failure] = []
        self._rows: list[pa.Table] = []
        self._started = False

    def over(self, items: Sequence[SourceItem]) -> None:
        done = 0
        for batch in self._prepared_batches(self._without_repeats(items)):
            if batch:
                embeddings = self.embedder.finish(self.embedder.infer([one.tensor for one in batch]))
                self._keep(_as_rows(batch, embeddings))
            done = done + len(batch)
            self.report(BuildProgress("embed", done + len(self.failures), len(items), len(self.failures)))
        self._commit()
        if not self._started:
            first = f", the first because {self.failures[0].reason}" if self.failures else ""
            raise BuildError(f"none of {len(items)} images could be used{first}")

    def _without_repeats(self, items: Sequence[SourceItem]) -> Iterator[SourceItem]:
        seen: set[str] = set()
        for item in items:
            if item.id in seen:
                self._fail(item, "its id was used before in this source; the first image was kept")
            elif _displayable(str(item.path)) != str(item.path):
                self._fail(item, "its file name is not UTF-8: rename it")
            else:
                seen.add(item.id)
                yield item

    def _prepared_batches(self, items: Iterator[SourceItem]) -> Iterator[list[_Prepared]]:
        size = self.embedder.batch_size
        ahead = 3 * size
        waiting: deque[tuple[SourceItem, Future[_Prepared]]] = deque()
        batch: list[_Prepared] = []
        with ThreadPoolExecutor(self.workers, thread_name_prefix="decode") as pool:
            try:
                exhausted = False
                while waiting or not exhausted:
                    while not exhausted and len(waiting) < ahead:
                        item = next(items, None)
                        if item is None:
                            exhausted = True
                        else:
                            waiting.append((item, pool.submit(prepare_item, item, self.embedder)))
                    if waiting:
                        batch += self._result(*waiting.popleft())
                    if len(batch) == size or (exhausted and not waiting):
                        yield batch
                        batch = []
            finally:
                pool.shutdown(cancel_futures=True)

    def _result(self, item: SourceItem, future: Future[_Prepared]) -> list[_Prepared]:
        try:
            return [future.result()]
        except (ImageError, OSError) as error:
            self._fail(item, getattr(error, "strerror", None) or str(error))
            return []

    def _fail(self, item: SourceItem, reason: str) -> None:
        failure = Failure(_displayable(item.id), _displayable(str(item.path)), reason)
        self.failures.append(failure)
        if self.max_failures is not None and len(self.failures) > self.max_failures:
            raise BuildError(
                f"{len(self.failures)} images could not be used, at most {self.max_failures} were allowed; "
                f"the last is '{failure.path}': {reason}"
            )

    def _keep(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        if sum(table.num_rows for table in self._rows) >= _ROWS_PER_COMMIT:
            self._commit()

    def _commit(self) -> None:
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows = []
        if self._started:
            self.gallery.append(rows)
        else:
            bundle = self.embedder.bundle
            self.gallery.start(rows, bundle=bundle.fingerprint, bundle_name=bundle.name)
            self._started = True


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now


def _displayable(text: str) -> str:
    # A file name that is not UTF-8 comes as a string that nothing can write or print.
    return text.encode("utf-8", "replace").decode()


def prepare_item(item: SourceItem, embedder: Embedder) -> _Prepared:
    encoded = item.path.read_bytes()
    image = embedder.decode(encoded)
    gray = image.resize((SIGNATURE_SIDE, SIGNATURE_SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    return _Prepared(
        item=item,
        tensor=embedder.prepare(image),
        thumbnail=make_thumbnail(image),
        content_sha256=hashlib.sha256(encoded).digest(),
        signature=np.asarray(gray, dtype=np.uint8).reshape(-1),
    )


def _as_rows(batch: Sequence[_Prepared], embeddings: FloatArray) -> pa.Table:
    n, dim = embeddings.shape
    signatures = np.stack([one.signature for one in batch])
    return pa.table(
        {
            "id": pa.array([one.item.id for one in batch], pa.string()),
            "label": pa.array([one.item.label for one in batch], pa.string()),
            "uri": pa.array([str(one.item.path) for one in batch], pa.string()),
            "metadata": pa.array([json.dumps(one.item.metadata) for one in batch], pa.string()),
            "thumbnail": pa.array([one.thumbnail for one in batch], pa.binary()),
            "content_sha256": pa.array([one.content_sha256 for one in batch], pa.binary(32)),
            "signature": pa.FixedSizeListArray.from_arrays(
                pa.array(signatures.reshape(-1)), signatures.shape[1]
            ),
            "added_at": pa.array([datetime.now(UTC)] * n, pa.timestamp("us", tz="UTC")),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), dim),
        }
    )


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
    report = dict(vars(result))
    report["failures"] = [vars(failure) for failure in result.failures]
    report["hygiene"] = vars(result.hygiene)
    report["created_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    return report
