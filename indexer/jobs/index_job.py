"""Index job: a new version of a gallery while the old one is searched and changed, in one attempt or several.

Rows are staged beside the table and committed in batches; another attempt goes on after the last of them.
Live changes that are made meanwhile are taken over before the new version is put in force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.embedding_sources import EmbeddingSource
from vicinal.indexer.errors import BuildError, GalleryBusyError, SourceError, SpaceMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.graph.neighbor_graph_update import update_neighbor_graph
from vicinal.indexer.graph.vector_index import check_factory
from vicinal.indexer.hygiene import Hygiene, examine
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, Failure, RunOptions
from vicinal.indexer.jobs.index_plan import IndexPlan, IndexResult, StageClock
from vicinal.indexer.jobs.live_diff import LiveDiff, contents_of, live_diff
from vicinal.indexer.jobs.preparation import ready_rows
from vicinal.indexer.jobs.staging import Base, Staging, remove_leftovers
from vicinal.indexer.sources import ANYWHERE, PUBLIC, SourceItem, WebAccess, file_at
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.storage.arrays import as_matrix
from vicinal.indexer.storage.item_table import Sequences
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder
from vicinal.models.errors import ReadyEmbeddingsError
from vicinal.models.progress import OnProgress, no_progress

__all__ = ["READY_ROWS_PER_COMMIT", "IndexJob", "gallery_items", "index_items"]

_BATCH = 4096
# Ready embeddings take no time, so that little is lost with many.
READY_ROWS_PER_COMMIT = 16_384
_PATIENCE = 1.0
# How the names of runs begin that nobody gave an id.
_BY_HAND = "index-"
_COPIED = (
    "id",
    "label",
    "uri",
    "metadata",
    "thumbnail",
    "content_sha256",
    "signature",
    "added_at",
    "taken_at",
    "camera",
    "embedding",
)
# Activations that come in between are rare, and so brief that one more look is enough.
_MOST_PUBLICATIONS = 3
_NOT_ACTIVATED = (
    "another version of the gallery was activated meanwhile, so that this one was not: "
    "activate it if it is the one to search"
)


def index_items(
    gallery: Gallery,
    items: Sequence[SourceItem] | EmbeddingSource | None,
    embedder: Embedder,
    *,
    index: str = "auto",
    activate: bool = True,
    max_failures: int | None = None,
    workers: int = 2,
    on_progress: OnProgress = no_progress,
) -> IndexResult:
    """Make a version of a source and let searches use it, going on where a run that was stopped has been.

    Searches and live changes go on meanwhile. What a stopped run has finished is kept for the next one over
    the same files, and thrown away when anything else is indexed.

    Args:
        gallery: The gallery, new or existing.
        items: What to index: images, of two with one id the first is kept; or ready embeddings. None for
            the gallery's own embeddings, with another index.
        embedder: Embedder of the bundle to use.
        index: Factory string of the vector index, or `auto`.
        activate: Let searches use the result; else it is a version that can be compared and activated.
        max_failures: Give up when more images than this cannot be used; None goes on.
        workers: Threads that decode beside the network.
        on_progress: See `IndexJob`.

    Raises:
        BuildError: Too many failures, or no image could be used.
        SourceError: An embedding cannot be used.
        SpaceMismatchError: The gallery holds embeddings of another space, or images.
        GalleryBusyError: Another process indexes the same source.
        GalleryError: Faiss does not know the factory string, or the disk refuses.
    """
    options = RunOptions(max_failures=max_failures, workers=workers, access=ANYWHERE)
    if isinstance(items, EmbeddingSource):
        options = replace(options, rows_per_commit=READY_ROWS_PER_COMMIT)
    plan = IndexPlan(items, index, activate=activate, options=options)
    staging = Staging(gallery, f"{_BY_HAND}{_digest(items)}")
    try:
        result = IndexJob(gallery, embedder, plan, staging, on_progress).run()
    except (BuildError, SourceError, SpaceMismatchError):
        staging.remove()
        raise
    staging.remove()
    return result


def gallery_items(gallery: Gallery, access: WebAccess = PUBLIC) -> list[SourceItem]:
    """The items of a gallery as a source; their files are where they were when they were indexed.

    Args:
        gallery: The gallery.
        access: What may be read of the web.

    Raises:
        ReadyEmbeddingsError: They came as embeddings.
    """
    space = gallery.space
    if space is not None:
        raise ReadyEmbeddingsError(gallery.name, space.space, "there are no images to learn from or to embed")
    active = gallery.activation
    return [] if active is None else _items_at(gallery, active, access=access)


def _digest(items: Sequence[SourceItem] | EmbeddingSource | None) -> str:
    """16 hexadecimal digits that change with a source and with its files."""
    digest = hashlib.sha256()
    if isinstance(items, EmbeddingSource):
        return hashlib.sha256(json.dumps(items.identity()).encode()).hexdigest()[:16]
    for item in items or ():
        with suppress(OSError):
            written = item.path.stat()
            digest.update(f"{written.st_size} {written.st_mtime_ns}".encode())
        digest.update(json.dumps([item.id, str(item.path), item.label, item.metadata]).encode())
    return digest.hexdigest()[:16]


class IndexJob:
    """One attempt at a new version.

    Args:
        gallery: The gallery, new or existing.
        embedder: Embedder of the bundle to use.
        plan: What to build.
        staging: Where the rows of earlier attempts are.
        on_progress: Called with `embed`, `neighbors` or `publish`, finished units and all after every batch;
            what it raises ends the attempt, finished rows committed.

    Attributes:
        failures: Images that could not be used so far.
        n_items: Items to index.
        n_done: Items that this attempt has finished.
        n_skipped: Items that an earlier attempt had finished.
    """

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        plan: IndexPlan,
        staging: Staging,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self.gallery = gallery
        self.embedder = embedder
        self.plan = plan
        self.staging = staging
        self.failures: list[Failure] = []
        self.n_items = self.n_done = self.n_skipped = 0
        self._report = on_progress
        self._clock = StageClock()

    def run(self) -> IndexResult:
        """Go on where the last attempt was, up to the new version.

        Raises:
            BuildError: Too many failures, or no image could be used.
            SourceError: A ready embedding cannot be used.
            SpaceMismatchError: The gallery holds embeddings of another space, or images.
            GalleryBusyError: Another process is at it.
            GalleryError: Faiss does not know the factory string, or the disk refuses.
        """
        self._check_space()
        check_factory(self.plan.index, self.embedder.bundle.dim)
        with self.staging.held():
            finished = self._finished_before()
            if finished is not None:
                return finished
            # Whoever starts by hand does not know what other jobs still wait for.
            remove_leftovers(self.gallery, "*" if self.plan.job else f"{_BY_HAND}*", but=self.staging.name)
            self.staging.begin(self.embedder.bundle.fingerprint)
            if (self.plan.items is None or self.plan.job is None) and not self._goes_on():
                # Rows of what was searched then and of what is searched now must not become one version, and
                # whoever starts by hand wants what they get to be searched.
                self.staging.begin_anew(self.embedder.bundle.fingerprint)
            if self.staging.base() is None:
                self._note_base(self.gallery.activation)
            self._stage_items()
            return self._publish(self._graph())

    def put_in_force(self, version: int) -> IndexResult:
        """Let searches use a version that `run` made and left waiting, together with its own calibrations.

        Live changes that came since it was made are kept: another version is then made that has them.

        Raises:
            BuildError: See `run`.
            GalleryBusyError: Another process is at it.
            GalleryError: The disk refuses.
        """
        self.plan = replace(self.plan, activate=True, calibrated_as=version)
        with self.staging.held():
            finished = self._finished_before()
            if finished is not None:
                return finished
            report = self.gallery.reports.of(version)
            if not self._goes_on():
                return IndexResult.from_report(report, is_active=False, remark=_NOT_ACTIVATED)
            with self._writing():
                active = self.gallery.activation
                is_current = active is not None and report.get("state") == _state(active)
                if is_current and self._activate(active, version):
                    return IndexResult.from_report(report, is_active=True)
            self.failures.clear()
            self._stage_items()
            return self._publish(self._graph())

    def _check_space(self) -> None:
        """Refuse to mix ready embeddings of a space with anything else."""
        active, given = self.gallery.activation, self.embedder.bundle.manifest
        if active is None or self._is_own_bundle(active):
            return
        space = self.gallery.space
        if space is None and not given.space:
            return
        raise SpaceMismatchError(self.gallery.name, self.gallery.in_words, given.in_words)

    def _finished_before(self) -> IndexResult | None:
        """What an earlier attempt made that died before it could say so."""
        active = self.gallery.activation
        activated = set() if active is None else {active.version, *active.revisions}
        for version in reversed(self.gallery.versions() if self.plan.job else ()):
            report = self.gallery.reports.of(version)
            if report.get("job") == self.plan.job and (not self.plan.activate or version in activated):
                return IndexResult.from_report(report, is_active=version in activated)
        return None

    def _note_base(self, activation: Activation | None) -> None:
        token, number = (None, 0) if activation is None else (activation.token, activation.next_number)
        self.staging.note_base(Base(contents_of(self.gallery, activation), token, number))

    def _stage_items(self) -> None:
        staged = set(self.staging.ids())
        active = self.gallery.pointer.keep_for(self.staging.name)
        if self.plan.items is None and active is None:
            raise BuildError(f"gallery '{self.gallery.name}' has no items: name a source")
        if self.plan.items is None and active is not None and self._is_own_bundle(active):
            self._copy_all(active, staged)
        elif isinstance(self.plan.items, EmbeddingSource):
            self._take(self.plan.items)
        else:
            items = self._own_items(active) if self.plan.items is None and active else self.plan.items or ()
            self._embed(items, staged)
        if self.staging.is_empty:
            first = f", the first because {self.failures[0].reason}" if self.failures else ""
            raise BuildError(f"no image could be used{first}")
        self._clock.lap("embed")

    def _is_own_bundle(self, active: Activation) -> bool:
        """Whether the gallery's embeddings can be kept."""
        identity = self.gallery.table.identity(active.revision)
        return bool(identity["bundle"] == self.embedder.bundle.fingerprint)

    def _own_items(self, active: Activation, sequences: Sequences | None = None) -> list[SourceItem]:
        """The gallery's items as a source: their files are read again."""
        return _items_at(self.gallery, active, sequences, self.plan.options.access)

    def _take(self, source: EmbeddingSource) -> None:
        """Stage the rows of ready embeddings that are not staged yet."""
        staged = pa.array(self.staging.ids(), pa.string())
        n_skipped = int(pc.sum(pc.is_in(source.ids, staged)).as_py())
        self.n_items, self.n_skipped, self.n_done = len(source), n_skipped, 0
        for rows in source.batches(self.plan.options.rows_per_commit):
            is_staged = pc.is_in(rows.ids, staged).to_numpy(zero_copy_only=False)
            if not is_staged.all():
                self.staging.append(ready_rows(rows.take(np.flatnonzero(~is_staged))))
            self.n_done += int((~is_staged).sum())
            self._report("embed", n_skipped + self.n_done, len(source))

    def _embed(self, items: Sequence[SourceItem], staged: set[str]) -> None:
        """Embed the items that are not staged yet."""
        todo = [item for item in items if item.id not in staged]
        self.n_items, self.n_skipped = len(items), len(items) - len(todo)
        options = replace(self.plan.options, resumes=not self.staging.is_empty)
        run = EmbeddingRun(self.staging.append, self.embedder, options)
        run.failures = self.failures
        readable = self._readable(todo)

        def report(stage: str, done: int, _total: int) -> None:
            self.n_done = done - len(self.failures)
            self._report(stage, self.n_skipped + done, len(items))

        try:
            run.over(readable, report)
        finally:
            # What is finished is kept for the next attempt, whatever ends this one.
            run.commit()

    def _readable(self, items: Sequence[SourceItem]) -> list[SourceItem]:
        readable = []
        for item in items:
            reason = self.plan.refuse(item.path)
            if reason is None:
                readable.append(item)
            else:
                self.failures.append(Failure(item.id, str(item.path), reason))
        return readable

    def _copy_all(self, active: Activation, staged: set[str]) -> None:
        """Stage the gallery's rows that are not staged yet, embeddings and all."""
        contents = contents_of(self.gallery, active)
        is_new = ~np.isin(contents["id"].to_numpy(zero_copy_only=False), list(staged))
        sequences = contents["sequence"].to_numpy()[is_new]
        self.n_items, self.n_skipped, self.n_done = len(contents), len(contents) - len(sequences), 0
        for rows in self._rows_of(active, sequences):
            self.staging.append(rows)
            self.n_done += len(rows)
            self._report("embed", self.n_skipped + self.n_done, len(contents))

    def _rows_of(self, active: Activation, sequences: Sequences) -> Iterator[pa.Table]:
        """Rows of the gallery by sequence, some thousands at a time, as they are staged."""
        self.gallery.table.check(active.revision)
        table = self.gallery.table.at(active.revision)
        numbers = table.to_table(columns=["sequence"], scan_in_order=True)["sequence"].to_numpy()
        order = np.argsort(numbers)
        places = order[np.searchsorted(numbers, sequences, sorter=order)]
        for start in range(0, len(places), _BATCH):
            rows = table.take(places[start : start + _BATCH].tolist(), columns=list(_COPIED))
            metadata = rows["metadata"].cast(pa.string())
            rows = rows.set_column(rows.schema.get_field_index("metadata"), "metadata", metadata)
            yield rows.replace_schema_metadata(None)

    def _graph(self) -> NeighborGraph:
        graph = build_neighbor_graph(self.staging.embeddings(), on_progress=self._report)
        self._clock.lap("neighbors")
        return graph

    def _publish(self, graph: NeighborGraph) -> IndexResult:
        for _ in range(_MOST_PUBLICATIONS):
            with self._writing():
                active = self.gallery.activation
                related, graph = self._catch_up(active, graph)
                report = self._write(graph, active)
                wanted = self.plan.activate and related
                is_active = wanted and self._activate(active, report["version"])
            if is_active or not wanted:
                self._report("publish", 1, 1)
                remark = _NOT_ACTIVATED if self.plan.activate and not is_active else None
                return IndexResult.from_report(report, is_active=is_active, remark=remark)
            # It lacks a change that came at the last moment; the next one has it.
            self.gallery.forget({report["version"]})
        raise GalleryBusyError(f"gallery '{self.gallery.name}' changes faster than a version can be made")

    def _activate(self, before: Activation | None, version: int) -> bool:
        """Put a version in force; not when anything was activated or changed since `before`."""
        pointer, calibrated_as = self.gallery.pointer, self.plan.calibrated_as
        return pointer.activate_if_unchanged(before, version, calibrated_as=calibrated_as)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the gallery for writing, however long others take, but not beyond a request to stop."""
        with ExitStack() as held:
            is_held = False
            while not is_held:
                self._report("publish", 0, 1)
                with suppress(GalleryBusyError):
                    held.enter_context(self.gallery.writing(patience=_PATIENCE))
                    is_held = True
            yield

    def _catch_up(self, active: Activation | None, graph: NeighborGraph) -> tuple[bool, NeighborGraph]:
        """Take over the live changes since the noted state; whether that state's items are still searched."""
        base = self.staging.base()
        if base is None or active is None:
            return active is None, graph
        # Always from the state that the first attempt noted, so that taking over twice changes nothing.
        now = contents_of(self.gallery, active)
        changes = self._changes(base, active, now)
        if changes is None:
            return False, graph
        outdated = {*changes.outdated, *self._strangers(now)}
        if outdated or len(changes.sequences):
            kept = self.staging.drop(sorted(outdated))
            self._take_over(active, changes.sequences)
            graph = update_neighbor_graph(graph, kept, self.staging.embeddings())
        return True, graph

    def _goes_on(self) -> bool:
        """Whether the items that an earlier attempt began with are still searched, but for live changes."""
        base, active = self.staging.base(), self.gallery.activation
        if base is None or active is None:
            return base is None or (active is None and base.token is None)
        return self._changes(base, active, contents_of(self.gallery, active)) is not None

    def _changes(self, base: Base, active: Activation, now: pa.Table) -> LiveDiff | None:
        """Live changes since the noted state; None when more than they and their compaction came."""
        made_by = self.gallery.reports.of(active.version).get("kind")
        anew = active.token != base.token and made_by != "compaction"
        return None if anew else live_diff(base, now)

    def _strangers(self, now: pa.Table) -> set[str]:
        """Staged items of earlier attempts that neither the source nor the gallery has any more."""
        return set(self.staging.ids()) - self.plan.ids - set(now["id"].to_pylist())

    def _take_over(self, active: Activation, sequences: Sequences) -> None:
        if self._is_own_bundle(active):
            for rows in self._rows_of(active, sequences):
                self.staging.append(rows)
        elif len(sequences):
            self._embed(self._own_items(active, sequences), staged=set())

    def _write(self, graph: NeighborGraph, active: Activation | None) -> dict[str, Any]:
        """Copy the staged rows into the table and make a version of them; its report."""
        bundle = self.embedder.bundle
        if bundle.manifest.space:
            self.gallery.keep_space(bundle.manifest)
        for number, rows in enumerate(self.staging.batches()):
            if number == 0:
                self.gallery.start(rows, bundle=bundle.fingerprint, bundle_name=bundle.name)
            else:
                self.gallery.append(rows)
        snapshot = self.gallery.publish(graph, index=self.plan.index, activate=False)
        hygiene = _examined(self.gallery, snapshot, has_images=not bundle.manifest.space)
        self._clock.lap("publish")
        made = snapshot.manifest
        result = IndexResult(
            version=made.version,
            n_items=made.n_items,
            n_labels=made.n_labels,
            index=made.index,
            provider=self.embedder.provider,
            seconds=self._clock.laps,
            failures=self.failures,
            hygiene=hygiene,
        )
        report = {**result.as_report(), "job": self.plan.job}
        if active is not None:
            # What it has the live changes of: `put_in_force` compares it.
            report["state"] = _state(active)
        self.gallery.reports.save(made.version, report)
        return report


def _items_at(
    gallery: Gallery, active: Activation, sequences: Sequences | None = None, access: WebAccess = PUBLIC
) -> list[SourceItem]:
    rows = gallery.columns(active.revision, ["sequence", "id", "uri", "label", "metadata"])
    if sequences is not None:
        rows = rows.filter(pa.array(np.isin(rows["sequence"].to_numpy(), sequences)))
    return [
        SourceItem(row["id"], file_at(row["uri"], access), row["label"], json.loads(row["metadata"] or "{}"))
        for row in rows.to_pylist()
    ]


def _state(active: Activation) -> list[Any]:
    """What changes with every live change and every activation."""
    return [active.token, active.revision]


def _examined(gallery: Gallery, snapshot: Snapshot, *, has_images: bool) -> Hygiene:
    names = ["id", "label", "content_sha256", *(["signature"] if has_images else [])]
    columns = gallery.columns(snapshot.manifest.revision, names)
    return examine(
        ids=columns["id"].to_pylist(),
        labels=columns["label"].to_pylist(),
        contents=columns["content_sha256"].to_pylist(),
        signatures=as_matrix(columns["signature"]) if has_images else None,
        neighbor_ids=snapshot.neighbor_ids,
        neighbor_similarities=snapshot.neighbor_similarities,
    )
