"""Embedding run: decodes in threads while the network runs, and commits finished rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from vicinal.indexer.cluster import Cluster
from vicinal.indexer.errors import BuildError
from vicinal.indexer.item_rules import readable
from vicinal.indexer.jobs.preparation import PreparedItem, as_rows, prepare_item
from vicinal.indexer.sources import PUBLIC, RemoteFile, SourceAccess, SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError
from vicinal.models.progress import OnProgress, no_progress

# Files in buckets that are read at a time.
_READERS = 8
# Large enough that Lance's files stay few, small enough that little is lost.
_ROWS_PER_COMMIT = 2048
# So that a short run loses little, and a long one has no thousand files.
_SHARE_PER_COMMIT = 0.1
_LEAST_SECONDS_PER_COMMIT = 1.0


@dataclass(frozen=True)
class Failure:
    """An image, or a row of ready embeddings, that is not in the gallery, and why."""

    id: str
    path: str
    reason: str

    @classmethod
    def of(cls, item: SourceItem, reason: str) -> Self:
        """An item that cannot be used, by names that can be written and printed."""
        return cls(readable(item.id), readable(str(item.path)), reason)


def failed_rows(source: EmbeddingSource) -> list[Failure]:
    """Rows of a source that cannot be used, as far as it was read."""
    return [Failure.of(one, str(one.problem)) for one in source.problems]


def check_failures(failures: Sequence[Failure], most: int | None, what: str = "image") -> None:
    """Give up where too many cannot be used."""
    if most is not None and len(failures) > most:
        last = failures[-1]
        several = f"{len(failures):,} {what}" + ("s" if len(failures) > 1 else "")
        raise BuildError(
            f"{several} could not be used, at most {most:,} were allowed; "
            f"the last is '{last.path}': {last.reason}"
        )


@dataclass(frozen=True)
class RunOptions:
    """Options of a run."""

    max_failures: int | None = None  # Give up when more images or rows than this cannot be used; None goes on
    workers: int = 2  # Threads that decode; more read files in buckets, which is mostly waiting
    rows_per_commit: int | None = None  # Finished rows that are committed together; what suits them when None
    # Commit also fewer rows when so much time has passed, or a tenth of what the run took so far, which is
    # what a death costs
    seconds_per_commit: float = 30.0
    access: SourceAccess = PUBLIC  # What may be read when the gallery's own items are read again
    resumes: bool = False  # The sink holds rows of an earlier run, so that having none to add is no failure


class EmbeddingRun:
    """Embeds items into rows that nobody searches yet, here or on a cluster."""

    def __init__(
        self,
        sink: Callable[[pa.Table], object],
        embedder: Embedder,
        options: RunOptions | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self._sink = sink
        self.embedder = embedder
        self.options = options or RunOptions()
        self._cluster = cluster
        self.failures: list[Failure] = []
        self._n_kept = 0
        self._rows: list[pa.Table] = []
        self._started = self.options.resumes
        self._reads_buckets = False
        self._began_at = self._committed_at = time.monotonic()

    def over(
        self,
        items: Sequence[SourceItem],
        on_progress: OnProgress = no_progress,
        *,
        known: Collection[str] = (),
    ) -> None:
        """Embed every item; failures are collected."""
        n_items = len(items) + len(self.failures)
        check_failures(self.failures, self.options.max_failures)
        self._reads_buckets = any(isinstance(item.path, RemoteFile) for item in items)
        usable = self._without_repeats(items, known)
        for _ in self._here(usable) if self._cluster is None else self._elsewhere(self._cluster, usable):
            on_progress("embed", self._n_kept + len(self.failures), len(items))
        self.commit()
        if not self._started:
            first = f", the first because {self.failures[0].reason}" if self.failures else ""
            raise BuildError(f"none of {n_items} images could be used{first}")

    def _here(self, items: Iterator[SourceItem]) -> Iterator[None]:
        for batch in self._prepared_batches(items):
            self._embed(batch)
            yield

    def _elsewhere(self, cluster: Cluster, items: Iterator[SourceItem]) -> Iterator[None]:
        for rows, failed in cluster.embedded(items, self.embedder):
            for item, reason in failed:
                self._fail(item, reason)
            if rows is not None:
                self._keep(rows)
            # Also where a block is waited for: what came before it may wait for long.
            self._commit_when_due()
            yield

    def _without_repeats(self, items: Sequence[SourceItem], known: Collection[str]) -> Iterator[SourceItem]:
        seen = set(known)
        for item in items:
            if item.problem is not None:
                self._fail(item, item.problem)
            elif item.id in seen:
                self._fail(item, "its id was used before in this source; the first image was kept")
            else:
                seen.add(item.id)
                yield item

    def _prepared_batches(self, items: Iterator[SourceItem]) -> Iterator[list[PreparedItem]]:
        batch: list[PreparedItem] = []
        for item, future in self._decoding(items):
            try:
                batch.append(future.result())
            except (ImageError, OSError) as error:
                self._fail(item, getattr(error, "strerror", None) or str(error))
            if len(batch) >= self.embedder.batch_size:
                yield batch
                batch = []
        # Also when empty: the last images may all have failed, and progress has to say so.
        yield batch

    def _decoding(self, items: Iterator[SourceItem]) -> Iterator[tuple[SourceItem, Future[PreparedItem]]]:
        """Items in order, while those of the next batches are being decoded."""
        ahead = 3 * self.embedder.batch_size
        workers = max(self.options.workers, _READERS if self._reads_buckets else 0)
        waiting: deque[tuple[SourceItem, Future[PreparedItem]]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
            try:
                for item in items:
                    waiting.append((item, pool.submit(prepare_item, item, self.embedder)))
                    if len(waiting) >= ahead:
                        yield waiting.popleft()
                while waiting:
                    yield waiting.popleft()
            finally:
                pool.shutdown(cancel_futures=True)

    def _embed(self, batch: list[PreparedItem]) -> None:
        if not batch:
            return
        raw = self.embedder.infer([one.tensor for one in batch])
        try:
            self._keep(as_rows(batch, self.embedder.finish(raw)))
        except EmbeddingError:
            # One image without direction must not take the others with it.
            for one, vector in zip(batch, raw, strict=True):
                try:
                    self._keep(as_rows([one], self.embedder.finish(vector[None])))
                except EmbeddingError as error:
                    self._fail(one.item, str(error))

    def _fail(self, item: SourceItem, reason: str) -> None:
        self.failures.append(Failure.of(item, reason))
        check_failures(self.failures, self.options.max_failures)

    def _keep(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._n_kept += rows.num_rows
        self._commit_when_due()

    def _commit_when_due(self) -> None:
        most = self.options.rows_per_commit or _ROWS_PER_COMMIT
        is_full = sum(table.num_rows for table in self._rows) >= most
        now = time.monotonic()
        patience = max(_LEAST_SECONDS_PER_COMMIT, _SHARE_PER_COMMIT * (now - self._began_at))
        if is_full or now - self._committed_at >= min(patience, self.options.seconds_per_commit):
            self.commit()

    def commit(self) -> None:
        """Commit the rows that are finished, as after the last batch; for a run that has to stop."""
        self._committed_at = time.monotonic()
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows = []
        self._sink(rows)
        self._started = True
