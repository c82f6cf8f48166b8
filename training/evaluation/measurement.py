"""Measurement: embeddings of a data set, made batch by batch or read from a file, and their figures."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from vicinal.calibration.arrays import AnyArray, AnyFloats, FloatArray, Texts
from vicinal.models.embedder import Embedder
from vicinal.models.errors import DatasetError, EvaluationError, ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.training.datasets import ImageListing, list_images
from vicinal.training.datasets.files import LabelledFile, ReadImage
from vicinal.training.evaluation.config import RetrievalTest
from vicinal.training.evaluation.report import Evaluation, EvaluationSettings, evaluate

# What a bundle states: clustering takes longest and says least about search.
_STATED = EvaluationSettings(ks=(1,), nmi=False, coarse=False)
_NOT_STATED = ("recall_", "n_without_mate", "n_classes")
_DIGITS = 5
# Images of which the pixels are held at a time.
_BATCH = 64
_ARRAYS = ("embeddings", "labels", "roles", "super_labels")


def measure_test(
    embedder: Embedder,
    test: RetrievalTest,
    settings: EvaluationSettings | None = None,
    *,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Embed the images of a test and measure; the test's own ranks and distance go before the settings'."""
    chosen = settings or EvaluationSettings()
    chosen = replace(chosen, ks=test.ks or chosen.ks, distance=test.distance or chosen.distance)
    listing = list_images(test.dataset)
    embeddings = embed_files(embedder, listing, on_progress=on_progress, raw=chosen.distance == "euclidean")
    return evaluate(
        embeddings,
        listing.labels,
        listing.roles,
        super_labels=listing.super_labels,
        settings=chosen,
        on_progress=on_progress,
    )


def manifest_metrics(embedder: Embedder, test: RetrievalTest) -> dict[str, float]:
    """Figures on a test, as a bundle states them: R@1 and precision, OPIS, AUROC and counts, rounded."""
    figures = measure_test(embedder, test, _STATED).figures
    return {
        name: round(value, _DIGITS) for name, value in figures.items() if not name.startswith(_NOT_STATED)
    }


@dataclass(frozen=True)
class StoredEmbeddings:
    """Embeddings (n, d) that were made before, normalized or not, with labels and perhaps others."""

    embeddings: AnyFloats
    labels: AnyArray
    roles: Texts | None
    super_labels: AnyArray | None = None


def embed_files(
    embedder: Embedder, listing: ImageListing, *, on_progress: OnProgress = no_progress, raw: bool = False
) -> FloatArray:
    """Embed the images of a data set; gives (n, d) float32, L2-normalized or as the network gives them."""
    embeddings = np.empty((len(listing), embedder.bundle.dim), np.float32)
    with listing.open() as read:
        for start in range(0, len(listing), _BATCH):
            batch = listing.files[start : start + _BATCH]
            embeddings[start : start + len(batch)] = _embed(embedder, batch, read, raw)
            on_progress("embed", start + len(batch), len(listing))
    return embeddings


def _embed(embedder: Embedder, files: Sequence[LabelledFile], read: ReadImage, raw: bool) -> FloatArray:
    try:
        return embedder.embed([read(file) for file in files], raw=raw)
    except ImageError as error:
        if len(files) == 1:
            raise DatasetError(f"image '{files[0].path}' cannot be used: {error.reason}") from error
    # One by one, the image that cannot be used gives its name.
    return np.concatenate([_embed(embedder, [file], read, raw) for file in files])


def read_embeddings(path: Path) -> StoredEmbeddings:
    """Read an `.npz` file with the arrays `embeddings`, `labels`, and maybe `roles` and `super_labels`."""
    try:
        with path.open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            names = _ARRAYS if isinstance(stored, NpzFile) else ()
            arrays = {name: stored[name] for name in names if name in stored}
    except FileNotFoundError as error:
        raise EvaluationError(f"there is no file '{path}'") from error
    except (EOFError, OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise EvaluationError(f"'{path}' is no .npz file of plain arrays: {error}") from error
    missing = [name for name in ("embeddings", "labels") if name not in arrays]
    if missing:
        raise EvaluationError(f"'{path}' has no array '{missing[0]}'")
    embeddings, labels, roles = arrays["embeddings"], arrays["labels"], arrays.get("roles")
    super_labels = arrays.get("super_labels")
    if embeddings.ndim != 2 or not np.issubdtype(embeddings.dtype, np.floating):
        raise EvaluationError(
            f"'{path}' has embeddings of shape {embeddings.shape} and type {embeddings.dtype}, "
            "expected (n, d) floating-point numbers"
        )
    for name, array in (("labels", labels), ("roles", roles), ("super_labels", super_labels)):
        if array is not None and array.shape != (len(embeddings),):
            raise EvaluationError(
                f"'{path}' has {name} of shape {array.shape}, expected ({len(embeddings)},)"
            )
    return StoredEmbeddings(embeddings, labels, None if roles is None else roles.astype(str), super_labels)
