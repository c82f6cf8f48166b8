"""Re-index job: a new version of a gallery from a source, with other settings or with another bundle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from vicinal.indexer.errors import GalleryBusyError, GalleryError, SpaceMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.vector_index import check_factory
from vicinal.indexer.jobs.conflicts import OnConflict
from vicinal.indexer.jobs.embedding_run import RunOptions
from vicinal.indexer.jobs.index_job import READY_ROWS_PER_COMMIT, IndexJob
from vicinal.indexer.jobs.index_plan import IndexPlan
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.jobs.sync.run import SyncRun
from vicinal.indexer.sources import EmbeddingSource, Source, SourceOptions, holds_embeddings, open_source
from vicinal.indexer.storage.gallery_names import require_name
from vicinal.models.errors import BundleError
from vicinal.refine.errors import RefineError
from vicinal.service.comparing.comparison import ComparisonPlan
from vicinal.service.comparing.record import (
    ActivationConditions,
    ComparisonOptions,
    ComparisonRequest,
)
from vicinal.service.errors import CalibrationRecordError, JobStoppedError, RequestError
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.galleries.uploads import require_parts
from vicinal.service.galleries.versions import prune_gallery
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobFailure, JobProgress
from vicinal.service.tasks.comparison_job import check_sources, comparison_fields, run_comparison
from vicinal.service.tasks.readable_sources import JobSources

logger = logging.getLogger(__name__)
REINDEX = "reindex"
_SHOWN_FAILURES = 20


class ReindexRequest(BaseModel):
    """What to make of a gallery; without a source its own items are taken.

    Attributes:
        source: Folder, manifest, dataset or ready embeddings below `sources_dir`, or a data set of the hub,
            of which is taken over what is new or changed.
        space: What made the ready embeddings.
        prefix: See `SourceOptions`; it and the following say how the source is read.
        on_conflict: What to do with an image whose id belongs to another image of another source.
        delete: Remove items that came from the source and that it no longer lists.
        restore: Bring back items that were removed and that the source still lists.
        bundle: Name of a bundle below `bundles_dir`; the service's own when None.
        index: Factory string of the vector index, or `auto`.
        max_failures: Give up when more images or rows than this cannot be used.
        activate: `automatic`: searches use the new version as soon as it is there; `manual`: it is compared
            with the active one and waits to be activated.
        activate_if: Compare it, and activate it when all of these conditions hold.
        comparison: How it is compared.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(
        None,
        description="Folder, manifest, dataset or ready embeddings below `sources_dir`, or a public data set "
        "of the hub, `hf:owner/name`, where addresses are allowed: what is new or changed there is taken "
        "over, and what the gallery holds stays.",
    )
    space: str | None = Field(
        None,
        description="What made the ready embeddings of the source, `NAME` or `NAME@VERSION`; the space of "
        "the gallery when null.",
    )
    prefix: str | None = Field(
        None, description="Stands before every id; the own name of a folder when null, none when empty."
    )
    label_from: str = Field(
        "auto",
        description="Where labels come from: `folder` (the topmost), `column`, `none`, `regex:PATTERN` (its "
        "one group, in the path), or `auto`: the column of a manifest, the folder unless folders look like "
        "albums.",
    )
    path_column: str | None = Field(None, description="Column of the paths, `path` when null.")
    label_column: str | None = Field(None, description="Column of the labels, `label` when null.")
    id_column: str | None = Field(None, description="Column of the ids, `id` when null.")
    embedding_column: str | None = Field(
        None, description="Column of ready embeddings, `embedding` when null."
    )
    include_hidden: StrictBool = Field(
        False, description="Also read hidden files and folders: bins, thumbnails and snapshots of systems."
    )
    on_conflict: OnConflict = Field(
        "error",
        description="What to do with an image whose id belongs to another image of another source; with "
        "`error` nothing is done when there is one.",
    )
    delete: StrictBool = Field(
        False, description="Remove items that came from this source and that it no longer lists."
    )
    restore: StrictBool = Field(
        False,
        description="Bring back items that were removed and that this source still lists; they are left out "
        "without it.",
    )
    bundle: str | None = Field(
        None, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of a bundle below `bundles_dir`."
    )
    index: str = Field(
        "auto",
        description="Kind of the vector index: `auto`, `Flat`, `SQ8`, `PQ16x4fs`, `HNSW32`, or inverted "
        "lists before them such as `IVF1024,SQ8`.",
        examples=["auto"],
    )
    max_failures: StrictInt | None = Field(
        None, ge=0, description="Most images or rows that may be left out."
    )
    activate: Literal["automatic", "manual"] = Field(
        "automatic",
        description="`automatic`: searches use the new version as soon as it is there, or when what is asked "
        "in `activate_if` holds; `manual`: it is compared with the active one and waits.",
    )
    activate_if: ActivationConditions | None = Field(
        None, description="What must hold of the comparison with the active version, at the bad end."
    )
    comparison: ComparisonOptions = Field(
        ComparisonOptions(), description="How the new version is compared with the active one."
    )

    @property
    def source_options(self) -> SourceOptions:
        """How the source is read."""
        return SourceOptions(
            self.prefix,
            self.label_from,
            self.path_column,
            self.label_column,
            self.id_column,
            self.embedding_column,
            include_hidden=self.include_hidden,
        )

    @model_validator(mode="after")
    def _options_are_of_use(self) -> ReindexRequest:
        if self.activate_if is not None and self.activate == "manual":
            raise ValueError(
                "conditions decide by themselves: give activate_if or activate = manual, not both"
            )
        for name in ("delete", "restore"):
            if getattr(self, name) and self.source is None:
                raise ValueError(f"{name} is about a source: name it")
        return self


class ReindexJob:
    """Re-indexes galleries.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
        on_change: Called with the name of a gallery that has a new version.
        options: How images are embedded.
    """

    def __init__(
        self,
        bundles: ServedBundles,
        on_change: Callable[[str], None],
        options: RunOptions | None = None,
    ) -> None:
        self.bundles = bundles
        self.settings = bundles.settings
        self.sources = JobSources.of(self.settings)
        self.options = options or RunOptions()
        self._on_change = on_change

    def check(self, gallery: str, request: ReindexRequest) -> None:
        """Refuse what cannot work before it waits in the queue."""
        require_name(gallery)
        if request.source is None or request.activate_if is not None:
            Gallery.open(self.settings.gallery_path(gallery))
        if request.source is not None:
            self.sources.check(request.source, also=(".npz", ".npy", ".tar"), takes_hub=True)
        check_sources(self.sources, request.comparison)
        try:
            if request.source_options != SourceOptions(None, "auto") and request.source is None:
                raise RequestError("name a source: without one there is nothing to read ids and labels from")
            own = Gallery(self.settings.gallery_path(gallery))
            is_ready = self._is_ready(own, request)
            ready = self._opened(own, request) if is_ready else None
            bundle = self._bundle(own, request, ready).bundle
            check_factory(request.index, bundle.dim)
        except (BundleError, GalleryError, RefineError) as error:
            raise RequestError(str(error)) from error
        held, given = own.in_words, bundle.manifest.in_words
        if held and held != given and (own.space is not None or is_ready):
            raise SpaceMismatchError(gallery, held, given)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Make the new version, compare it with the active one, and activate it when that was asked for."""
        if context.job.folders != self.sources.folders:
            narrowed = copy(self)
            narrowed.sources = self.sources.within(context.job.folders)
            return narrowed.run(context)
        job, request = context.job, ReindexRequest.model_validate(context.request)
        source = self._opened(Gallery(self.settings.gallery_path(job.gallery)), request)
        if source is not None and request.delete:
            source.require_whole()
        index_job = self._index_job(context, request, source)
        gallery = index_job.gallery
        try:
            result, compared = index_job.run(), {}
            # The first version of a gallery has nothing to be compared with, and there may be no new one.
            if not index_job.plan.activate and result.is_new and gallery.active_version is not None:
                asked = ComparisonRequest(**request.comparison.model_dump(), versions=(result.version,))
                plan = ComparisonPlan(gallery, self.bundles, asked, request.activate_if)
                made = run_comparison(context, plan, self.sources)
                compared = comparison_fields(made)
                if made.decision is not None:
                    compared["decision"] = made.decision.model_dump(mode="json")
                    result = index_job.put_in_force(result.version) if made.decision.activate else result
        except GalleryBusyError as error:
            # The worker before this one is not dead yet; when it is, another attempt is made.
            raise JobStoppedError("overtaken") from error
        self._on_change(job.gallery)
        self._prune(gallery)
        look = {} if source is None else {"source": asdict(source.look(self.sources.refusal))}
        return {**result.summary(), **look, **compared}

    def clean(self, job: Job) -> None:
        """Remove the staged rows; those of a cancelled job stay until it is resumed or another one begins."""
        if job.state == "cancelled":
            return
        Staging(Gallery(self.settings.gallery_path(job.gallery)), job.id).remove()

    def _prune(self, gallery: Gallery) -> None:
        try:
            prune_gallery(gallery, self.settings.retention)
        except (GalleryBusyError, CalibrationRecordError) as error:
            # Old versions take room and do no harm; the next compaction tries again.
            logger.info("old versions of gallery '%s' are not removed now: %s", gallery.name, error)

    def _is_ready(self, gallery: Gallery, request: ReindexRequest) -> bool | None:
        """Whether the source is one of ready embeddings; None for the gallery's own items.

        Raises:
            RequestError: A space or a bundle would play no part.
        """
        found = None
        if request.source is not None:
            place, options = self._place(request.source, request)
            expected = (request.space or gallery.space) is not None
            found = holds_embeddings(place, options, expected=expected, refuse=self.sources.require)
        name = request.source or gallery.name
        require_parts(name, is_ready=found, space=request.space, bundle=request.bundle)
        return found

    def _opened(self, gallery: Gallery, request: ReindexRequest) -> Source | EmbeddingSource | None:
        if request.source is None:
            return None
        place, options = self._place(request.source, request)
        is_ready = bool(self._is_ready(gallery, request))
        return open_source(place, options, expects_embeddings=is_ready)

    def _place(self, source: str, request: ReindexRequest) -> tuple[Path | str, SourceOptions]:
        return self.sources.place(source), self.sources.options(source, request.source_options)

    def _bundle(
        self, gallery: Gallery, request: ReindexRequest, source: Source | EmbeddingSource | None
    ) -> ServedBundle:
        """The bundle to index with; the own items of a gallery of ready embeddings keep its space."""
        unopened: Literal["images"] | None = None if request.source is None else "images"
        return self.bundles.resolve(
            gallery, unopened if source is None else source, bundle=request.bundle, space=request.space
        )

    def _index_job(
        self, context: JobContext, request: ReindexRequest, source: Source | EmbeddingSource | None
    ) -> IndexJob:
        gallery = Gallery(self.settings.gallery_path(context.job.gallery))
        served = self._bundle(gallery, request, source)
        options = replace(self.options, max_failures=request.max_failures)
        if isinstance(source, EmbeddingSource):
            options = replace(options, rows_per_commit=READY_ROWS_PER_COMMIT)
        plan = IndexPlan(
            items=source.items if isinstance(source, Source) else source,
            source=None if source is None else source.name,
            on_conflict=request.on_conflict,
            delete=request.delete,
            restore=request.restore,
            index=request.index,
            activate=request.activate == "automatic" and request.activate_if is None,
            options=options,
            refuse=self.sources.refusal,
            unread={} if source is None else source.unread,
            job=context.job.id,
        )
        staging = Staging(gallery, context.job.id)

        def report(stage: str, done: int, total: int, _note: str = "", /) -> None:
            context.report(_progress_of(index_job.sync, stage, done, total))

        index_job = IndexJob(gallery, served.embedder, plan, staging, report)
        return index_job


def _progress_of(sync: SyncRun, stage: str, done: int, total: int) -> JobProgress:
    return JobProgress(
        stage=stage,
        stage_done=done,
        stage_total=total,
        total=sync.n_items,
        done=sync.n_done,
        failed=len(sync.failures),
        skipped=sync.n_skipped,
        failures=tuple(JobFailure.model_validate(one) for one in sync.failures[:_SHOWN_FAILURES]),
    )
