"""Re-index: an index in a job, whose new version may be compared before it is searched."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from vicinal.indexer.engines import check_index
from vicinal.indexer.errors import GalleryBusyError, GalleryError, SpaceMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.jobs.sync.plan import IndexResult
from vicinal.indexer.sources import ImageFile, SourceLook
from vicinal.models.errors import BundleError
from vicinal.refine.errors import RefineError
from vicinal.service.comparing.record import ComparisonRequest, objection
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.galleries.versions import prune_gallery
from vicinal.service.jobs.records import Job
from vicinal.service.operations import Operation, Progress
from vicinal.service.operations.compare import compared
from vicinal.service.operations.index import NewVersion, holds_ready, index_job, open_items
from vicinal.service.operations.place import FILES_OF_QUERIES, Place
from vicinal.service.request_fields import ComparisonOptions, refuse_gone

logger = logging.getLogger(__name__)


class ReindexRequest(NewVersion):
    """Request to make a gallery anew; without a source its own items are taken."""

    activate: Literal["automatic", "manual", "no_worse"] = Field(
        "automatic",
        description="`automatic`: searches use the new version as soon as it is there; `manual`: it is "
        "compared with the active one and waits; `no_worse`: it is compared, and used where it is "
        "calibrated and neither FNIR nor hit rate is worse by more than chance.",
    )
    comparison: ComparisonOptions = Field(
        ComparisonOptions(), description="How the new version is compared with the active one."
    )

    _say_what_is_gone = model_validator(mode="before")(refuse_gone)

    @model_validator(mode="after")
    def _options_are_of_use(self) -> ReindexRequest:
        for name in ("delete", "restore"):
            if getattr(self, name) and self.source is None:
                raise ValueError(f"{name} is about a source: name it")
        return self

    @property
    def is_compared(self) -> bool:
        """Tell whether the new version waits for a comparison."""
        return self.activate != "automatic"


@dataclass(frozen=True)
class Reindexed:
    """Outcome for a gallery: its version, what the source held, and what is said of a comparison."""

    result: IndexResult
    look: SourceLook | None
    compared: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """Summary of the job's result."""
        look = {} if self.look is None else {"source": asdict(self.look)}
        return {**self.result.summary(), **look, **self.compared}


def require(place: Place, request: ReindexRequest) -> None:
    """Refuse what cannot work before it waits in the queue."""
    gallery = place.gallery
    if request.source is None or request.activate == "no_worse":
        Gallery.open(gallery.path)
    if request.source is not None:
        place.readable.check(request.source, also=FILES_OF_QUERIES, takes_hub=True)
    for name, also in request.comparison.sources:
        place.readable.check(name, also=also)

    def refuse(file: ImageFile) -> None:
        if reason := place.readable.refusal(file):
            raise RequestError(f"'{Path(str(file)).name}': {reason}")

    try:
        is_ready = holds_ready(place, request, refuse)
        # Images are listed when the job runs: that may take minutes.
        unopened: Literal["images"] | None = None if request.source is None else "images"
        source = open_items(place, request) if is_ready else unopened
        served = place.bundles.resolve(gallery, source, bundle=request.bundle, space=request.space)
        check_index(request.index or gallery.index_kind, served.bundle.dim, gallery.tables.engine)
    except (BundleError, GalleryError, RefineError) as error:
        raise RequestError(str(error)) from error
    held, given = gallery.in_words, served.bundle.manifest.in_words
    if held and held != given and (gallery.space is not None or is_ready):
        raise SpaceMismatchError(gallery.name, held, given)


def run(place: Place, request: ReindexRequest, progress: Progress) -> Reindexed:
    """Make the new version, compare it with the active one, and activate it when that was asked for."""
    gallery, source = place.gallery, open_items(place, request)
    job = index_job(place, request, source, progress, activate=not request.is_compared)
    result, told = job.run(), dict[str, Any]()
    # The first version of a gallery has nothing to be compared with, and there may be no new one.
    if request.is_compared and result.is_new and gallery.active_version is not None:
        asked = ComparisonRequest(**request.comparison.model_dump(), versions=(result.version,))
        made = compared(place, gallery, asked, progress)
        told = made.in_short
        if request.activate == "no_worse":
            told["objection"] = objection(made.variants[-1])
            result = job.put_in_force(result.version) if told["objection"] is None else result
    _prune(place)
    return Reindexed(result, None if source is None else source.look(place.readable.refusal), told)


def clean(place: Place, job: Job) -> None:
    """Remove the staged rows; those of a cancelled job stay until it is resumed or another one begins."""
    if job.state != "cancelled":
        Staging(place.gallery, job.id).remove()


OPERATION = Operation(
    "reindex",
    ReindexRequest,
    run,
    require=require,
    told=lambda _, made: made.told(),
    clean=clean,
    goes_on=True,
)


def _prune(place: Place) -> None:
    try:
        prune_gallery(place.gallery, place.settings.retention)
    except (GalleryBusyError, CalibrationRecordError) as error:
        # Old versions take room and do no harm; the next compaction tries again.
        logger.info("old versions of gallery '%s' are not removed now: %s", place.gallery.name, error)
