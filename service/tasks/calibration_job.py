"""Calibration job: finds the threshold for a target, beside the searches."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from vicinal.calibration import OneLabelError, UnlabelledGalleryError
from vicinal.indexer.gallery import GALLERY_NAME, Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import as_embeddings
from vicinal.service.calibrator.options import CalibrationOptions
from vicinal.service.calibrator.queries import QueryReading, read_queries, write_embeddings, write_images
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.errors import CalibrationNotFoundError, RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobFailure, JobProgress
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.settings import Settings
from vicinal.service.tasks.calibrate import chosen_pipeline, run_calibration
from vicinal.service.tasks.readable_sources import JobSources
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["CALIBRATE", "CalibrationJob", "CalibrationRequest", "QueryRequest"]

CALIBRATE = "calibrate"
_SHOWN_FAILURES = 20


class QueryRequest(Protocol):
    """Where the labelled queries of a job come from."""

    @property
    def queries(self) -> str | None:
        """Folder, manifest or `.npz` file below `sources_dir`."""

    @property
    def is_upload(self) -> bool:
        """Whether they came with the request."""

    @property
    def group_by(self) -> str | None:
        """Metadata column of the visit or session."""


class CalibrationRequest(CalibrationOptions):
    """A calibration, and the labelled queries that it is made with.

    Attributes:
        queries: Folder, manifest or `.npz` file below `sources_dir`; without one, and without an upload,
            every labelled item is left out once.
        is_upload: Whether the queries came with the request.
    """

    queries: str | None = None
    is_upload: bool = False


class CalibrationJob:
    """Calibrates galleries.

    The record has the id of its job, so that an attempt after the death of a worker finds what the one before
    has kept; an unfinished one begins anew.

    Args:
        settings: Where galleries and sources are.
        embedder: Gives the embedder of the service's bundle; called when it is needed first.
        on_change: Called with the name of a gallery whose threshold has changed.
    """

    def __init__(
        self, settings: Settings, embedder: Callable[[], Embedder], on_change: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self.sources = JobSources(settings.sources_dir)
        self._bundles = ServedBundles(settings, embedder)
        self._on_change = on_change

    def check(
        self, matcher: Matcher, request: CalibrationRequest, labels: Sequence[str] | None = None
    ) -> None:
        """Refuse what cannot work before it waits in the queue.

        Args:
            matcher: The gallery.
            request: What was asked for.
            labels: Labels of queries that came with it.

        Raises:
            RequestError: The queries lie elsewhere, or there is no such pipeline.
            CalibrationError: Nothing is labelled, or everything alike.
            RefineError: The bundle has no such refiner.
            GalleryNotRefinedError: The gallery's items were never refined so.
        """
        matcher.refinement(chosen_pipeline(matcher, request))
        self._check_labels_of(matcher, request, labels)

    def _check_labels_of(self, matcher: Matcher, request: QueryRequest, labels: Sequence[str] | None) -> None:
        known = {label for label in matcher.snapshot.labels if label is not None}
        if not known:
            raise UnlabelledGalleryError(
                f"no item of gallery '{matcher.gallery.name}' has a label: index it from class subfolders or "
                "a manifest with a label column"
            )
        if request.queries is not None:
            self.sources.check(request.queries, also=(".npz",))
        elif len(known | set(labels or ())) < 2:
            raise OneLabelError(
                f"all images of gallery '{matcher.gallery.name}' carry one label, so that there are no "
                "negative pairs: add images of other labels"
            )

    def keep_embeddings(
        self, job: Job, embeddings: npt.ArrayLike, labels: Sequence[str], *, dim: int
    ) -> None:
        """Keep queries that came as embeddings until the job is done.

        Args:
            job: The job.
            embeddings: (n, d) numbers.
            labels: One label each.
            dim: Length d of the gallery's embeddings.

        Raises:
            EmbeddingError: They are no embeddings of the gallery's bundle.
            RequestError: Not one label each.
        """
        checked = as_embeddings(embeddings, dim)
        _check_labels(len(checked), labels)
        write_embeddings(self._uploads(job), embeddings, labels)

    def keep_images(self, job: Job, images: Sequence[bytes], labels: Sequence[str]) -> None:
        """Keep queries that came as images until the job is done.

        Raises:
            RequestError: Not one label each.
        """
        _check_labels(len(images), labels)
        write_images(self._uploads(job), images, labels)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Calibrate, keep the record and put it in force if that was asked for."""
        job, request = context.job, CalibrationRequest.model_validate(context.request)
        gallery = Gallery.open(self.settings.galleries_path / job.gallery)
        active = gallery.activation
        store = CalibrationStore(
            gallery.calibrations_path, calibrated_as=0 if active is None else active.calibrated_as
        )
        record = _kept(store, job)
        if record is None:
            record = self._calibrate(context, gallery, request)
        if request.activate:
            store.activate(record)
            self._on_change(job.gallery)
        return {
            "calibration": record.id,
            "threshold": record.threshold,
            "target": str(record.target),
            "pipeline": record.pipeline.key,
            "is_active": request.activate,
        }

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        if GALLERY_NAME.fullmatch(job.gallery):
            shutil.rmtree(self._uploads(job), ignore_errors=True)

    def matcher(self, gallery: Gallery) -> Matcher:
        """Matcher of the present state of a gallery, with the bundle that it was embedded with."""
        view = GalleryReader(gallery).view()
        served = self._bundles.of(gallery.name, view.snapshot.manifest.bundle)
        return Matcher(gallery, served.embedder, served.pipeline, view=view, refiner=served.refiner)

    def _calibrate(
        self, context: JobContext, gallery: Gallery, request: CalibrationRequest
    ) -> CalibrationRecord:
        matcher = self.matcher(gallery)
        reading = self._reading(context, matcher, request)

        def report(done: int, total: int) -> None:
            context.report(_progress("score", done, total, reading))

        found = run_calibration(matcher, request, reading, on_progress=report)
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        context.report(_progress("keep", 0, 1, reading))
        own = found.record.model_copy(update={"id": context.job.id})
        return _kept(matcher.calibrations, context.job) or matcher.calibrations.add(
            own, found.scores, found.curves, activate=False
        )

    def _reading(self, context: JobContext, matcher: Matcher, request: QueryRequest) -> QueryReading | None:
        refuse = None
        if request.is_upload:
            folder = self._uploads(context.job)
            source = next((path for path in folder.glob("queries.*")), folder)
        elif request.queries is not None:
            source, refuse = self.sources.path(request.queries), self.sources.refusal
        else:
            return None

        def report(reading: QueryReading) -> None:
            done = len(reading.items) + len(reading.failures)
            context.report(_progress("embed", done, reading.total, reading))

        return read_queries(
            source, matcher.embedder, group_by=request.group_by, refuse=refuse, on_progress=report
        )

    def _uploads(self, job: Job) -> Path:
        gallery = Gallery(self.settings.galleries_path / job.gallery)
        return gallery.calibrations_path / "uploads" / job.id


def _kept(store: CalibrationStore, job: Job) -> CalibrationRecord | None:
    """What another attempt has finished."""
    try:
        return store.find(job.id)
    except CalibrationNotFoundError:
        return None


def _check_labels(n: int, labels: Sequence[str]) -> None:
    if len(labels) != n:
        raise RequestError(f"{len(labels)} labels for {n} queries: send one each")
    if not all(labels):
        raise RequestError(f"{sum(not label for label in labels)} of {n} queries have no label")


def _progress(stage: str, done: int, total: int, reading: QueryReading | None) -> JobProgress:
    progress = JobProgress(stage=stage, stage_done=done, stage_total=total)
    if reading is None:
        return progress
    return progress.model_copy(
        update={
            "total": reading.total,
            "done": len(reading.items),
            "failed": len(reading.failures),
            "failures": tuple(
                JobFailure(id=one.id, path=one.path, reason=one.reason)
                for one in reading.failures[:_SHOWN_FAILURES]
            ),
        }
    )
