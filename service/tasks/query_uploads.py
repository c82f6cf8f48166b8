"""Query uploads: the labelled queries that a job is made with, named below `sources_dir` or sent along."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
from pydantic import BaseModel

from vicinal.calibration import UnlabelledGalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.item_rules import checked_label
from vicinal.indexer.jobs.embedding_run import Failure
from vicinal.indexer.storage.gallery_names import GALLERY_NAME
from vicinal.models.similarity import as_embeddings
from vicinal.service.errors import RequestError
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobFailure, JobProgress
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import (
    require_labels,
)
from vicinal.service.settings import Settings
from vicinal.service.tasks.readable_sources import JobSources

_SHOWN_FAILURES = 20


class QueryRequest(BaseModel):
    """Where the labelled queries of a job come from.

    Attributes:
        queries: Folder, manifest, dataset or ready embeddings below `sources_dir`, or a data set of the hub;
            without one, and without an upload, every labelled item is left out once.
        is_upload: Whether they came with the request.
    """

    queries: str | None = None
    is_upload: bool = False


class QueryProgress:
    """Tells a job how far it is, and which of its queries cannot be used.

    Args:
        context: The job.

    Attributes:
        failures: Queries that cannot be used, so far.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.failures: list[Failure] = []
        self._read = 0
        self._total = 0

    def __call__(self, stage: str, done: int, total: int, _note: str = "", /) -> None:
        """Report a stage; the queries that were read stay in sight."""
        if stage == "embed":
            self._read, self._total = done, total
        shown = self.failures[:_SHOWN_FAILURES]
        self._context.report(
            JobProgress(
                stage=stage,
                stage_done=done,
                stage_total=total,
                total=self._total,
                done=self._read - len(self.failures),
                failed=len(self.failures),
                failures=tuple(JobFailure.model_validate(one) for one in shown),
            )
        )


class QueryUploads:
    """Labelled queries of jobs.

    Args:
        settings: Where galleries and sources are.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sources = JobSources.of(settings)

    def check(self, matcher: Matcher, request: QueryRequest, labels: Sequence[str] | None) -> None:
        """Refuse what cannot work before it waits in the queue."""
        name, is_from_source = f"gallery '{matcher.gallery.name}'", request.queries is not None
        try:
            require_labels(matcher.snapshot.labels, None if is_from_source else labels or (), name=name)
        except UnlabelledGalleryError as error:
            if not matcher.view.n_labels:
                raise
            raise UnlabelledGalleryError(
                f"{name} has labels in its {matcher.view.n_changes:,} live changes only: compact it first, "
                "so that a version holds them"
            ) from error
        if request.queries is not None:
            self.sources.check(request.queries, also=(".npz", ".npy", ".tar"), takes_hub=True)

    def keep_embeddings(
        self, job: Job, embeddings: npt.ArrayLike, labels: Sequence[str], *, dim: int
    ) -> None:
        """Keep queries that came as embeddings until the job is done.

        Args:
            embeddings: (n, d) numbers.
        """
        _check_labels(len(as_embeddings(embeddings, dim)), labels)
        numbers = np.atleast_2d(np.asarray(embeddings, dtype=np.float64))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), dim)
        # Like numbers, packed, would look like a file that was made to fill the memory.
        table = pa.table({"label": list(labels), "embedding": lists})
        pa.parquet.write_table(
            table, self._made(job) / "queries.parquet", compression="none", use_dictionary=["label"]
        )

    def keep_images(self, job: Job, images: Sequence[bytes], labels: Sequence[str]) -> None:
        """Keep queries that came as images until the job is done."""
        _check_labels(len(images), labels)
        folder, names = self._made(job), [f"image-{number:06}" for number in range(len(images))]
        for name, image in zip(names, images, strict=True):
            (folder / name).write_bytes(image)
        table = pa.table({"path": names, "label": list(labels)})
        pa.parquet.write_table(table, folder / "queries.parquet")

    def uploaded(self, job: Job) -> Path:
        """The queries that came with a request."""
        found = next(self._folder(job).glob("queries.*"), None)
        if found is None:
            raise RequestError("the queries that were sent are gone: start the job again")
        return found

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        if GALLERY_NAME.fullmatch(job.gallery):
            shutil.rmtree(self._folder(job), ignore_errors=True)

    def _made(self, job: Job) -> Path:
        folder = self._folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _folder(self, job: Job) -> Path:
        gallery = Gallery(self.settings.gallery_path(job.gallery))
        return gallery.calibrations_path / "uploads" / job.id


def _check_labels(n: int, labels: Sequence[str]) -> None:
    if len(labels) != n:
        raise RequestError(f"{len(labels)} labels for {n} queries: send one each")
    if not all(labels):
        raise RequestError(f"{sum(not label for label in labels)} of {n} queries have no label")
    for number, label in enumerate(labels):
        checked_label(label, f"query {number}")
