"""Query uploads: the labelled queries that were sent along with the request of a job, and the form for it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from vicinal.indexer.disk import replace_file
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.item_rules import checked_label
from vicinal.indexer.storage.gallery_names import GALLERY_NAME
from vicinal.indexer.storage.home import Mirror
from vicinal.models.similarity import as_embeddings
from vicinal.service.errors import RequestError
from vicinal.service.jobs.records import Job
from vicinal.service.request_fields import QuerySource, RequestFields
from vicinal.service.settings import Settings

_TEXTS = {"string", "integer", "number", "boolean", "null"}


class QueryUploads:
    """Labelled queries that were sent, each kept until its job is done."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def keep_embeddings(
        self, job: Job, embeddings: npt.ArrayLike, labels: Sequence[str], *, dim: int
    ) -> None:
        """Keep n queries that came as embeddings (n, dim), of any length above 0."""
        _check_labels(len(as_embeddings(embeddings, dim)), labels)
        numbers = np.atleast_2d(np.asarray(embeddings, dtype=np.float64))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), dim)
        table = pa.table({"label": list(labels), "embedding": lists})
        self._keep(job, {"queries.parquet": _packed(table, use_dictionary=["label"])})

    def keep_images(self, job: Job, images: Sequence[bytes], labels: Sequence[str]) -> None:
        """Keep queries that came as images."""
        _check_labels(len(images), labels)
        names = [f"image-{number:06}" for number in range(len(images))]
        table = pa.table({"path": names, "label": list(labels)})
        self._keep(job, {**dict(zip(names, images, strict=True)), "queries.parquet": _packed(table)})

    def uploaded(self, job: Job) -> Path:
        """The queries that came with a request."""
        found = next(self._folder(job).glob("queries.*"), None)
        if found is None:
            raise RequestError("the queries that were sent are gone: start the job again")
        return found

    def clean(self, job: Job) -> None:
        """Remove uploaded queries."""
        if GALLERY_NAME.fullmatch(job.gallery):
            mirror = Mirror.keeping(self._folder(job) / "queries.parquet")
            if mirror is not None:
                mirror.drop([self._folder(job)])
            shutil.rmtree(self._folder(job), ignore_errors=True)

    def _keep(self, job: Job, files: Mapping[str, bytes]) -> None:
        folder = self._folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(folder / name, content, durable=False)
        mirror = Mirror.keeping(folder / "queries.parquet")
        if mirror is not None:
            mirror.bring(folder)

    def _folder(self, job: Job) -> Path:
        gallery = Gallery(self.settings.gallery_path(job.gallery))
        return gallery.path / "calibrations" / "uploads" / job.id


def _packed(table: pa.Table, **options: Any) -> bytes:
    """A table as a Parquet file; like numbers, compressed, would look like a file made to fill the memory."""
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, compression="none", **options)
    return sink.getvalue()


def form_of(model: type[RequestFields]) -> dict[str, Any]:
    """JSON schemas of a request's fields that a form, of texts and images, may have, by name."""
    fields = model.model_json_schema()["properties"]
    return {
        name: schema
        for name, schema in fields.items()
        if name not in QuerySource.model_fields
        and {one.get("type") for one in schema.get("anyOf", [schema])} <= _TEXTS
    }


def _check_labels(n: int, labels: Sequence[str]) -> None:
    if len(labels) != n:
        raise RequestError(f"{len(labels)} labels for {n} queries: send one each")
    if not all(labels):
        raise RequestError(f"{sum(not label for label in labels)} of {n} queries have no label")
    for number, label in enumerate(labels):
        checked_label(label, f"query {number}")
