"""Index job: a new version of a gallery while the old one is searched and changed, in one attempt or several.

What is the same in the source and in the old version is copied, embeddings and all. Rows are staged beside
the table and committed in batches; another attempt goes on after the last of them. Live changes that are
made meanwhile are taken over before the new version is put in force.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from vicinal.indexer.engines import check_index
from vicinal.indexer.errors import (
    BuildError,
    GalleryBusyError,
    ItemExistsError,
    SourceError,
    SpaceMismatchError,
)
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, update_neighbor_graph
from vicinal.indexer.hygiene import Hygiene, examine_items
from vicinal.indexer.jobs.embedding_run import RunOptions
from vicinal.indexer.jobs.staging import Base, LiveDiff, Staging, contents_of, live_diff, remove_leftovers
from vicinal.indexer.jobs.sync.plan import IndexPlan, IndexResult
from vicinal.indexer.jobs.sync.run import SyncRun, SyncWork
from vicinal.indexer.sources import ANYWHERE, SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.views.view import GalleryView
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress

_PATIENCE = 1.0
# How the names of runs begin that nobody gave an id.
_BY_HAND = "index-"
# Of many ids that are missing or left out these are kept.
_MOST_NAMED = 1000
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
    max_failures: int | None = None,
    workers: int = 2,
    on_progress: OnProgress = no_progress,
    **plan: Any,
) -> IndexResult:
    """Take a source over into a gallery and let searches use it, going on where a stopped run has been.

    The gallery keeps what it holds; only what is new or changed in the source is embedded. Where that is
    nothing, no version is made. Searches and live changes go on meanwhile. What a stopped run has finished is
    kept for the next one over the same files, and thrown away when anything else is indexed.

    Args:
        items: What to index. None for the gallery's own items: with the bundle that embedded them another
            index is built, with another bundle they are embedded again.
        max_failures: Give up when more images or rows than this cannot be used; None goes on.
        **plan: As for `IndexPlan`: `source`, `index`, `activate` and others.

    Raises:
        ItemExistsError: Ids belong to other images, and the plan does not say what becomes of these.
        BuildError: Too many failures, none could be used, or what is held cannot be embedded again.
        SpaceMismatchError: The gallery holds embeddings of another space, or images.
        GalleryBusyError: Another process indexes the same source.
    """
    options = RunOptions(max_failures=max_failures, workers=workers, access=ANYWHERE)
    return IndexJob(
        gallery, embedder, IndexPlan(items, options=options, **plan), on_progress=on_progress
    ).run()


def _digest(plan: IndexPlan) -> str:
    """16 hexadecimal digits that change with a source, with its files and with what becomes of them."""
    digest = hashlib.sha256(json.dumps([plan.source, plan.conflict, plan.delete, plan.restore]).encode())
    if isinstance(plan.items, EmbeddingSource):
        digest.update(json.dumps(plan.items.identity()).encode())
        return digest.hexdigest()[:16]
    for item in plan.items or ():
        with suppress(OSError):
            written = item.path.stat()
            digest.update(f"{written.st_size} {written.st_mtime_ns}".encode())
        digest.update(json.dumps([item.id, str(item.path), item.label, item.metadata]).encode())
    return digest.hexdigest()[:16]


class IndexJob:
    """Attempt at a new version, staged as the plan's job; or, without `staging`, as runs over the same files,
    whose rows go when it ends or another attempt would not help. What `on_progress` raises ends it.
    """

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        plan: IndexPlan,
        staging: Staging | None = None,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._is_by_hand = staging is None and plan.job is None
        self.gallery = gallery
        self.embedder = embedder
        self.plan = plan
        self.staging = staging or Staging(gallery, plan.job or f"{_BY_HAND}{_digest(plan)}")
        self.sync = SyncRun(gallery, embedder, plan, self.staging, on_progress)
        self._report = on_progress
        self._seconds: dict[str, float] = {}
        self._lap_began = time.monotonic()

    @property
    def _index(self) -> str:
        return self.plan.index or self.gallery.index_kind

    def run(self) -> IndexResult:
        """Go on where the last attempt was, up to the new version."""
        try:
            result = self._run()
        except (BuildError, ItemExistsError, SourceError, SpaceMismatchError):
            if self._is_by_hand:
                self.staging.remove()
            raise
        if self._is_by_hand:
            self.staging.remove()
        return result

    def _run(self) -> IndexResult:
        active, given = self.gallery.activation, self.embedder.bundle.manifest
        if active is not None and not self.sync.is_own_bundle(active) and (self.gallery.space or given.space):
            # Ready embeddings of a space are not mixed with anything else.
            raise SpaceMismatchError(self.gallery.name, self.gallery.in_words, given.in_words)
        check_index(self._index, self.embedder.bundle.dim, self.gallery.tables.engine)
        with self.staging.held():
            finished = self._finished_before()
            if finished is not None:
                return finished
            self.gallery.remove_half_made()
            # Whoever starts by hand does not know what other jobs still wait for.
            remove_leftovers(self.gallery, "*" if self.plan.job else f"{_BY_HAND}*", but=self.staging.name)
            self.staging.begin(self.embedder.bundle.fingerprint)
            active = self.gallery.activation
            changes = self._changes(active)
            if changes is None:
                # Rows of what was searched then and of what is searched now must not become one version.
                self.staging.begin_anew(self.embedder.bundle.fingerprint)
                token, number = (None, 0) if active is None else (active.token, active.next_number)
                self.staging.note_base(Base(contents_of(self.gallery, active), token, number))
            work = self.sync.planned(() if changes is None else changes.outdated)
            if self._is_needed(work):
                self._stage(work)
            self.sync.require_some(work)
            if work.active is not None and not self._is_needed(work):
                return self._unchanged(work, work.active)
            return self._publish(work, self._graph())

    def put_in_force(self, version: int) -> IndexResult:
        """Let searches use a waiting version of `run`, its own calibrations, and live changes made since."""
        self.plan = replace(self.plan, activate=True, calibrated_as=version)
        with self.staging.held():
            finished = self._finished_before()
            if finished is not None:
                return finished
            report = self.gallery.reports.of(version)
            if self.staging.base() is not None and self._changes(self.gallery.activation) is None:
                return IndexResult.from_report(report, is_active=False, remark=_NOT_ACTIVATED)
            with self._writing():
                active = self.gallery.activation
                is_current = active is not None and report.get("state") == _state(active)
                if is_current and self._activate(active, version):
                    return IndexResult.from_report(report, is_active=True)
            changes = self._changes(self.gallery.activation)
            work = self.sync.planned(() if changes is None else changes.outdated)
            self._stage(work)
            return self._publish(work, self._graph())

    def _finished_before(self) -> IndexResult | None:
        """Result of an earlier attempt that died before it could say so."""
        active = self.gallery.activation
        activated = set() if active is None else {active.version, *active.revisions}
        for version in reversed(self.gallery.versions() if self.plan.job else ()):
            report = self.gallery.reports.of(version)
            if report.get("job") == self.plan.job and (not self.plan.activate or version in activated):
                return IndexResult.from_report(report, is_active=version in activated)
        return None

    def _stage(self, work: SyncWork) -> None:
        self.sync.stage(work)
        self._end("embed")

    def _end(self, stage: str) -> None:
        now = time.monotonic()
        self._seconds[stage] = round(now - self._lap_began, 3)
        self._lap_began = now

    def _is_needed(self, work: SyncWork) -> bool:
        """Tell whether a version has to be made."""
        if self.plan.items is None or work.active is None or not work.is_own_bundle or work.plan.is_needed:
            return True
        if self.gallery.kept_refiner(self.embedder.bundle) != self.gallery.refiner:
            return True
        manifest = self.gallery.snapshot().manifest
        return self._index not in ("auto", manifest.index, manifest.index_kind)

    def _unchanged(self, work: SyncWork, active: Activation) -> IndexResult:
        """The result where nothing had to be done."""
        self.gallery.keep_space(self.embedder.bundle)
        self._report("publish", 1, 1)
        labels = self.gallery.table.columns(active.revision, ["label"])["label"]
        return self._result(
            work,
            version=active.version,
            n_items=len(labels),
            n_labels=pc.count_distinct(labels).as_py(),
            index=self.gallery.snapshot().manifest.index,
            hygiene=Hygiene(),
            is_new=False,
            is_active=True,
        )

    def _result(self, work: SyncWork, **more: Any) -> IndexResult:
        cluster = self.gallery.cluster
        return IndexResult(
            provider=(cluster and cluster.provider) or self.embedder.provider,
            seconds=self._seconds,
            failures=self.sync.failures,
            counts=work.plan.counts(),
            missing=work.plan.ids("missing")[:_MOST_NAMED],
            left_out=work.plan.ids("left_out")[:_MOST_NAMED],
            unread=dict(islice(self.plan.unread.items(), _MOST_NAMED)),
            **more,
        )

    def _graph(self) -> NeighborGraph:
        graph = self.gallery.neighbors(self.staging.embeddings(), on_progress=self._report)
        self._end("neighbors")
        return graph

    def _publish(self, work: SyncWork, graph: NeighborGraph) -> IndexResult:
        for _ in range(_MOST_PUBLICATIONS):
            with self._writing():
                active = self.gallery.activation
                related, graph = self._catch_up(active, graph)
                self.sync.forget_dropped(work)
                report = self._write(work, graph, active)
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
        if active is None:
            return True, graph
        # Always from the state that the first attempt noted, so that taking over twice changes nothing.
        changes = self._changes(active)
        if changes is None:
            return False, graph
        # Staged by earlier attempts, and neither in the source nor in the gallery any more; and what was
        # added and removed again since the source was compared.
        others = set(self.staging.ids()) - self.plan.ids
        others |= self.gallery.removals.read().but(self.sync.removed)
        outdated = {*changes.outdated, *(others - changes.present)}
        if outdated or len(changes.sequences):
            kept = self.staging.drop(sorted(outdated))
            self.sync.take_over(active, changes.sequences)
            graph = update_neighbor_graph(graph, kept, self.staging.embeddings())
        return True, graph

    def _changes(self, active: Activation | None) -> LiveDiff | None:
        """Live changes since the noted state, if any; None when more than they and their compaction came."""
        base, token = self.staging.base(), None if active is None else active.token
        if base is None:
            return None
        if token != base.token and (
            active is None or self.gallery.reports.of(active.version).get("kind") != "compaction"
        ):
            return None
        return live_diff(base, contents_of(self.gallery, active))

    def _write(self, work: SyncWork, graph: NeighborGraph, active: Activation | None) -> dict[str, Any]:
        """Copy the staged rows into the table and make a version of them; its report."""
        bundle = self.embedder.bundle
        self.gallery.keep_space(bundle)
        for number, rows in enumerate(self.staging.batches()):
            if number == 0:
                self.gallery.start(
                    rows,
                    bundle=bundle.fingerprint,
                    bundle_name=bundle.name,
                    refiner=self.gallery.kept_refiner(bundle),
                )
            else:
                self.gallery.table.append(rows)
        snapshot = self.gallery.publish(graph, index=self._index, activate=False)
        hygiene = examine_items(self.gallery, GalleryView.of(snapshot), has_images=not bundle.manifest.space)
        self._end("publish")
        made = snapshot.manifest
        result = self._result(
            work,
            version=made.version,
            n_items=made.n_items,
            n_labels=made.n_labels,
            index=made.index,
            hygiene=hygiene,
            n_embedded=self.sync.n_embedded,
        )
        report = {**result.as_report(), "job": self.plan.job}
        if active is not None:
            # What it has the live changes of: `put_in_force` compares it.
            report["state"] = _state(active)
        self.gallery.reports.save(made.version, report)
        return report


def _state(active: Activation) -> list[Any]:
    """Numbers that change with every live change and every activation."""
    return [active.token, active.revision]
