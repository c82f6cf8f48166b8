"""Sync run: stages the rows of a new version, copies of what is held and what a source adds to them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import Ints
from vicinal.indexer.errors import BuildError, ItemExistsError, named_ids
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, Failure, check_failures, failed_rows
from vicinal.indexer.jobs.preparation import FileState, ready_rows, stated_by
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.jobs.sync.held_rows import (
    STATED,
    HeldRows,
    copied_rows,
    items_of,
    listed_embeddings,
    listed_files,
    redescribed,
)
from vicinal.indexer.jobs.sync.plan import Description, IndexPlan, SyncPlan, plan_sync
from vicinal.indexer.sources import PUBLIC, ImageFile, RemoteFile, SourceAccess, SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.storage.removals import RemovedItems
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress

# Ready embeddings take no time, so that little is lost with many.
READY_ROWS_PER_COMMIT = 16_384


@dataclass
class SyncWork:
    """Work of an attempt on `active`; items that changed since the job began are taken over in the end."""

    plan: SyncPlan
    active: Activation | None
    held: HeldRows
    is_own_bundle: bool
    images: Sequence[SourceItem] = ()
    access: SourceAccess = PUBLIC

    @cached_property
    def kept(self) -> HeldRows:
        """Items whose rows stay, or which are embedded again with another bundle."""
        return self.held.but(self.plan.ids("changed", "replaced", "removed"))

    @cached_property
    def listed(self) -> dict[str, SourceItem]:
        """Images of the source by id, the first of each."""
        return {one.id: one for one in reversed(self.images)}

    @cached_property
    def embedded_again(self) -> dict[str, SourceItem]:
        """Items that are embedded again and have to be read from where they were."""
        if self.is_own_bundle:
            return {}
        same = self.listed.keys() & {*self.plan.ids("unchanged", "updated")}
        return {one.id: one for one in items_of(self.kept.but(same).rows, self.access)}

    @cached_property
    def described(self) -> dict[str, Description]:
        """Descriptions of the items, by id, that are not described by the source alone."""
        if self.is_own_bundle:
            return self.plan.described
        held = {item_id: one.description for item_id, one in self.kept.items().items()}
        return {**held, **self.plan.described}

    @cached_property
    def todo(self) -> list[str]:
        """Ids of the items to embed, or to read of a file of ready embeddings."""
        again = [] if self.is_own_bundle else self.kept.ids
        return [*again, *self.plan.ids("added", "changed", "replaced")]


class SyncRun:
    """Rows staged in one attempt or several, never twice; `on_progress` gets `copy` or `embed`. Counts are
    those of all attempts; `removed` is what persons removed before the source was compared.
    """

    def __init__(
        self, gallery: Gallery, embedder: Embedder, plan: IndexPlan, staging: Staging, on_progress: OnProgress
    ) -> None:
        self.gallery = gallery
        self.embedder = embedder
        self.plan = plan
        self.staging = staging
        self.failures: list[Failure] = []
        self.removed = RemovedItems()
        self.n_items = self.n_done = self.n_skipped = self.n_embedded = 0
        self._report = on_progress
        self._ready = plan.items if isinstance(plan.items, EmbeddingSource) else None
        self._kind = "image" if self._ready is None else "row"

    def planned(self, changed: Collection[str]) -> SyncWork:
        """Compare the source with what is searched."""
        self.failures.clear()
        self.removed = self.gallery.removals.read()
        active = self.gallery.pointer.keep_for(self.staging.name)
        if self.plan.items is None and active is None:
            raise BuildError(f"gallery '{self.gallery.name}' has no items: name a source")
        everything = HeldRows.of(self.gallery, active)
        held, items = everything.but(changed), self.plan.items
        images = [] if items is None or isinstance(items, EmbeddingSource) else self._allowed(items)
        sync = self._compared(everything, held, images, set(changed))
        if self._ready is not None:
            self._note_rows(self._ready, held)
        refused = sync.ids("refused")
        if refused:
            advice = "nothing was indexed: 'replace' or 'skip' on conflict decides, or other ids"
            what: Literal["image", "embedding"] = "image" if self._ready is None else "embedding"
            raise ItemExistsError(self.gallery.name, refused, advice, what)
        is_own = active is None or self.is_own_bundle(active)
        return SyncWork(sync, active, held, is_own, images, self.plan.options.access)

    def stage(self, work: SyncWork) -> None:
        """Stage all rows of the new version that are not staged yet."""
        if work.plan.ids("left_out") and not (len(work.kept) or work.todo):
            raise BuildError(
                f"gallery '{self.gallery.name}' would be left without an item: all that the source lists was "
                "removed from it earlier, and comes back only where that is asked for (restore)"
            )
        self._check_lost(one.id for one in work.embedded_again.values() if not self._can_read(one.path))
        self._drop_others(work)
        if work.is_own_bundle:
            self._copy(work, work.kept)
        if self._ready is not None:
            self._take(self._ready, work)
        elif self.plan.items is not None or work.todo:
            self._embed(work)
        if self.staging.is_empty:
            first = f", the first because {self.failures[0].reason}" if self.failures else ""
            raise BuildError(f"no {self._kind} could be used{first}")

    def require_some(self, work: SyncWork) -> None:
        """Refuse a source of which nothing can be used."""
        if self.failures and self.plan.items is not None and not self.plan.ids & work.plan.outcomes.keys():
            raise BuildError(
                f"none of {len(self.plan.items)} {self._kind}s could be used, the first because "
                f"{self.failures[0].reason}"
            )

    def take_over(self, active: Activation, sequences: Ints) -> None:
        """Stage rows that were changed since the job began, as they are now."""
        changed = HeldRows.of(self.gallery, active).at(sequences)
        is_own, access = self.is_own_bundle(active), self.plan.options.access
        work = SyncWork(SyncPlan(), active, changed, is_own, access=access)
        if work.is_own_bundle:
            for rows in copied_rows(self.gallery, active, sequences, {}):
                self.staging.append(rows)
        elif work.todo:
            self._check_lost(one.id for one in work.embedded_again.values() if not self._can_read(one.path))
            self._run(work, list(work.embedded_again.values()))
            self._check_lost({*work.todo} - {*self.staging.ids()})

    def forget_dropped(self, work: SyncWork) -> None:
        """Forget removals of what the source itself takes away: it may bring that back."""
        dropped = work.held.only(work.plan.ids("changed", "replaced", "removed")).items()
        self.gallery.removals.forget((item_id, one.content_sha256) for item_id, one in dropped.items())

    def _compared(
        self, everything: HeldRows, held: HeldRows, images: Sequence[SourceItem], changed: set[str]
    ) -> SyncPlan:
        plan = self.plan
        removed = RemovedItems() if plan.restore else self.removed
        moved = removed.moving(plan.source, everything.contents) if removed.items and plan.source else {}
        if self._ready is not None:
            if not len(held) and not removed.items:
                return SyncPlan(dict.fromkeys(self._ready.ids.to_pylist(), "added"))
            listed = listed_embeddings(self._ready, plan.source)
        else:
            # Nobody reads every file in a bucket first.
            moved.pop(None, None)
            known = None if moved or plan.delete else {*held.ids, *removed.items}
            listed = listed_files(images, plan.source, known)
        there = held.only(listed).items()
        if plan.source is not None:
            there |= held.of_source(plan.source).items()
        return plan_sync(
            there,
            {item_id: one for item_id, one in listed.items() if item_id not in changed},
            source=plan.source,
            also_listed=plan.ids,
            conflict=plan.conflict,
            delete=plan.delete,
            removed=removed,
            moved=moved,
        )

    def is_own_bundle(self, active: Activation) -> bool:
        """Tell whether the gallery's embeddings can be kept."""
        identity = self.gallery.table.identity(active.revision)
        return bool(identity["bundle"] == self.embedder.bundle.fingerprint)

    def _check_lost(self, ids: Iterable[str]) -> None:
        """Refuse to leave out what the gallery holds."""
        lost = list(ids)
        if len(lost) > (self.plan.options.max_failures or 0):
            raise BuildError(
                f"all of gallery '{self.gallery.name}' would have to be embedded again with bundle "
                f"'{self.embedder.bundle.name}', and {len(lost):,} of its images cannot be read any more: "
                f"{named_ids(lost)}; keep to its bundle, remove these items, or let them go by allowing as "
                "many failures"
            )

    def _can_read(self, file: ImageFile) -> bool:
        if not file.is_absolute() or self.plan.refuse(file) is not None:
            return False
        if isinstance(file, Path):
            return os.access(file, os.R_OK)
        # Nobody asks for every file of a bucket first.
        return isinstance(file, RemoteFile) or FileState.of(file) is not None

    def _drop_others(self, work: SyncWork) -> None:
        """Drop staged rows of earlier attempts that this one has no use for."""
        staged = self.staging.ids()
        if not staged:
            return
        todo = set(work.todo)
        copied = set(work.kept.ids) if work.is_own_bundle else set[str]()
        stale = [item_id for item_id in staged if item_id not in copied and item_id not in todo]
        if work.is_own_bundle:
            # Copies, because the new images could not be used: somebody may have mended them.
            digests, there = self.staging.digests(), work.held.only(todo.intersection(staged)).items()
            stale += [item_id for item_id, one in there.items() if digests[item_id] == one.content_sha256]
        self.staging.drop(stale)

    def _append(self, work: SyncWork, rows: pa.Table) -> None:
        """Stage rows that were just made."""
        self.staging.append(redescribed(stated_by(rows, self.plan.source), work.described, STATED))
        self.n_embedded += len(rows)

    def _take(self, source: EmbeddingSource, work: SyncWork) -> None:
        todo = {*work.todo}
        wanted = todo.difference(self.staging.ids())
        self.n_items, self.n_done = len(todo.union(one.id for one in self.failures)), 0
        self.n_skipped = self.n_embedded = len(todo) - len(wanted)
        n_rows = self.plan.options.rows_per_commit or READY_ROWS_PER_COMMIT
        for rows in source.batches(n_rows) if len(wanted) else ():
            places = np.flatnonzero([item_id in wanted for item_id in rows.ids.to_pylist()])
            if len(places):
                self._append(work, ready_rows(rows.take(places)))
            self.n_done += len(places)
            self._note_rows(source)
            self._report("embed", self.n_skipped + self.n_done + len(self.failures), self.n_items)
        self._note_rows(source, work.held)
        failed = wanted.difference(self.staging.ids())
        work.plan.fail(failed)
        self._copy(work, work.held.only(failed))

    def _note_rows(self, source: EmbeddingSource, held: HeldRows | None = None) -> None:
        """Note the rows that cannot be used; what is held under their ids stays."""
        self.failures[:] = failed_rows(source)
        check_failures(self.failures, self.plan.options.max_failures, "row")
        if held is not None and self.failures:
            self._say_that_they_stay({*held.only([one.id for one in self.failures]).ids})

    def _embed(self, work: SyncWork) -> None:
        """Embed the items that are not staged yet; what is held stays where an image cannot be used."""
        staged = set(self.staging.ids())
        left = {item_id for item_id in work.todo if item_id not in staged}
        images = self._to_embed(work, left)
        self.n_skipped = self.n_embedded = len(work.todo) - len(left)
        self.n_items = self.n_skipped + len(images) + len(self.failures)
        self._run(work, images, known=work.listed.keys() - left)
        failed = left - set(self.staging.ids())
        work.plan.fail(failed)
        there = work.held.only(failed)
        if not work.is_own_bundle:
            self._check_lost(there.ids)
        elif len(there):
            self._copy(work, there)
            self._say_that_they_stay(set(there.ids))

    def _to_embed(self, work: SyncWork, left: set[str]) -> list[SourceItem]:
        """Images to embed; and those that come twice, for the run to say so."""
        seen, others = set[str](), list[SourceItem]()
        for item in work.images:
            if item.id in seen:
                others.append(item)
            seen.add(item.id)
        # Those of the source were looked at before.
        again = self._allowed([one for one in work.embedded_again.values() if one.id in left])
        found = {item_id: one for item_id, one in work.listed.items() if item_id not in work.embedded_again}
        found |= {one.id: one for one in again}
        return [*(found[item_id] for item_id in work.todo if item_id in left and item_id in found), *others]

    def _run(self, work: SyncWork, images: Sequence[SourceItem], *, known: Collection[str] = ()) -> None:
        options = replace(self.plan.options, resumes=not self.staging.is_empty)
        run = EmbeddingRun(partial(self._append, work), self.embedder, options, self.gallery.cluster)
        run.failures = self.failures

        def report(stage: str, done: int, _total: int, _note: str = "", /) -> None:
            self.n_done = done - len(self.failures)
            self._report(stage, self.n_skipped + done, self.n_items)

        try:
            run.over(images, report, known=known)
        finally:
            # What is finished is kept for the next attempt, whatever ends this one.
            run.commit()

    def _allowed(self, images: Sequence[SourceItem]) -> list[SourceItem]:
        """The images that can and may be read; the others are failures."""
        allowed = []
        for one in images:
            refusal = one.problem or self.plan.refuse(one.path)
            if refusal is None:
                allowed.append(one)
            else:
                self.failures.append(Failure.of(one, refusal))
        return allowed

    def _say_that_they_stay(self, ids: set[str]) -> None:
        for place, one in enumerate(self.failures):
            if one.id in ids:
                self.failures[place] = replace(one, reason=f"{one.reason}; the item stays as it was")

    def _copy(self, work: SyncWork, kept: HeldRows) -> None:
        """Stage rows of the gallery that are not staged yet, embeddings and all."""
        left = kept.but(self.staging.ids())
        if work.active is None or not len(left):
            return
        is_all, n_done = self.plan.items is None, len(kept) - len(left)
        if is_all:
            self.n_items, self.n_skipped = len(kept), n_done
        for rows in copied_rows(self.gallery, work.active, left.sequences, work.plan.described):
            self.staging.append(rows)
            n_done += len(rows)
            if is_all:
                self.n_done = n_done - self.n_skipped
            self._report("embed" if is_all else "copy", n_done, len(kept))
