"""Re-index job: a new version of a gallery from a source, with other settings or with another bundle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from indexer.embedding_run import RunOptions
from indexer.errors import GalleryBusyError, GalleryError
from indexer.gallery import GALLERY_NAME, Gallery
from indexer.rebuild import Rebuild
from indexer.rebuild_plan import RebuildPlan, RebuildProgress
from indexer.sources import read_source
from indexer.staging import Staging
from indexer.vector_index import check_factory
from models.bundle import ModelBundle
from models.embedder import Embedder
from models.errors import BundleError
from service.errors import CalibrationRecordError, JobStoppedError, RequestError
from service.jobs.context import JobContext
from service.jobs.records import Job, JobFailure, JobProgress
from service.jobs.sources import JobSources
from service.refinement import refinement_plan
from service.settings import Settings
from service.upkeep import prune_gallery

__all__ = ["REINDEX", "ReindexJob", "ReindexRequest"]

logger = logging.getLogger(__name__)
REINDEX = "reindex"
_SHOWN_FAILURES = 20
# A worker that dies loses at most this much of its work.
_SECONDS_PER_COMMIT = 30.0


class ReindexRequest(BaseModel):
    """What to make of a gallery; without a source its own items are taken.

    Attributes:
        source: Folder or manifest below `sources_dir`.
        bundle: Name of a bundle below `bundles_dir`; the service's own when None.
        index: Factory string of the vector index, or `auto`.
        max_failures: Give up when more images than this cannot be used.
        activate: `automatic`: searches use the new version as soon as it is there; `manual`: it waits to be
            activated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(None, description="Folder or manifest below `sources_dir`.")
    bundle: str | None = Field(
        None, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of a bundle below `bundles_dir`."
    )
    index: str = Field("auto", description="Faiss index_factory string.")
    max_failures: int | None = Field(None, ge=0, description="Most images that may be left out.")
    # Conditions, such as a rate that a calibration of the new version has to hold, belong here.
    activate: Literal["automatic", "manual"] = Field(
        "automatic", description="Whether searches use the new version as soon as it is there."
    )


class ReindexJob:
    """Re-indexes galleries.

    Args:
        settings: Where galleries, sources and bundles are.
        embedder: Gives the embedder of the service's bundle; called when it is needed first.
        on_change: Called with the name of a gallery that has a new version.
        options: How images are embedded.
    """

    def __init__(
        self,
        settings: Settings,
        embedder: Callable[[], Embedder],
        on_change: Callable[[str], None],
        options: RunOptions | None = None,
    ) -> None:
        self.settings = settings
        self.sources = JobSources(settings.sources_dir)
        self.options = options or RunOptions(seconds_per_commit=_SECONDS_PER_COMMIT)
        self._embedder = embedder
        self._on_change = on_change

    def check(self, gallery: str, request: ReindexRequest) -> None:
        """Refuse what cannot work before it waits in the queue.

        Raises:
            RequestError: The gallery's name, the source, the bundle or the index is none, or lies elsewhere.
            GalleryNotFoundError: There is neither a source nor such a gallery.
        """
        if not GALLERY_NAME.fullmatch(gallery):
            raise RequestError(f"'{gallery}' is no gallery name: use lower-case letters, digits, - and _")
        if request.source is None:
            Gallery.open(self.settings.galleries_path / gallery)
        else:
            self.sources.check(request.source)
        own = self._embedder().bundle
        try:
            bundle = own if request.bundle is None else ModelBundle.open(self._bundle(request.bundle))
            check_factory(request.index, bundle.dim)
        except (BundleError, GalleryError) as error:
            raise RequestError(str(error)) from error
        if bundle.fingerprint != own.fingerprint and request.activate == "automatic":
            raise RequestError(
                f"bundle '{request.bundle}' is not the one this service runs, whose searches would fail: "
                "ask for activate = manual, and activate the version when the service runs with the bundle"
            )

    def run(self, context: JobContext) -> dict[str, Any]:
        """Make the new version; see `indexer.rebuild`."""
        job, request = context.job, ReindexRequest.model_validate(context.request)
        embedder = self._embedder() if request.bundle is None else self._other_embedder(request.bundle)
        refinement = refinement_plan(self.settings.pipeline_for(embedder.bundle), embedder.bundle)
        gallery = Gallery(self.settings.galleries_path / job.gallery, refinement=refinement)
        plan = RebuildPlan(
            items=None if request.source is None else read_source(self.sources.path(request.source)),
            index=request.index,
            activate=request.activate == "automatic",
            options=replace(self.options, max_failures=request.max_failures),
            refuse=self.sources.refusal,
        )
        rebuild = Rebuild(
            gallery,
            embedder,
            plan,
            Staging(gallery, job.id),
            lambda progress: context.report(_as_progress(progress)),
        )
        try:
            result = rebuild.run()
        except GalleryBusyError as error:
            # The worker before this one is not dead yet; when it is, another attempt is made.
            raise JobStoppedError("overtaken") from error
        self._on_change(job.gallery)
        self._prune(gallery)
        return asdict(result)

    def clean(self, job: Job) -> None:
        """Remove the staged rows."""
        Staging(Gallery(self.settings.galleries_path / job.gallery), job.id).remove()

    def _prune(self, gallery: Gallery) -> None:
        try:
            prune_gallery(gallery, self.settings.retention)
        except (GalleryBusyError, CalibrationRecordError) as error:
            # Old versions take room and do no harm; the next compaction tries again.
            logger.info("old versions of gallery '%s' are not removed now: %s", gallery.name, error)

    def _bundle(self, name: str) -> Path:
        if self.settings.bundles_dir is None:
            raise RequestError("there is only one bundle here: set VICINAL_BUNDLES_DIR to use others by name")
        return self.settings.bundles_dir / name

    def _other_embedder(self, name: str) -> Embedder:
        settings = self.settings
        bundle = ModelBundle.open(self._bundle(name))
        return Embedder(
            bundle, device=settings.device, threads=settings.threads, limits=settings.decode_limits
        )


def _as_progress(progress: RebuildProgress) -> JobProgress:
    return JobProgress(
        stage=progress.stage,
        stage_done=progress.stage_done,
        stage_total=progress.stage_total,
        total=progress.total,
        done=progress.done,
        failed=len(progress.failures),
        skipped=progress.skipped,
        failures=tuple(JobFailure.model_validate(one) for one in progress.failures[:_SHOWN_FAILURES]),
    )
