"""Embeddings of a data set: made batch by batch, so that a set of any size fits, or read from a file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from vicinal.calibration.arrays import AnyArray, AnyFloats, FloatArray, Texts
from vicinal.models.embedder import Embedder
from vicinal.models.errors import DatasetError, EvaluationError, ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.training.datasets.files import LabelledFile, ReadImage

# Images of which the pixels are held at a time.
_BATCH = 64
_ARRAYS = ("embeddings", "labels", "roles")


@dataclass(frozen=True)
class StoredEmbeddings:
    """Embeddings (n, d) that were made before, normalized or not, with labels and perhaps roles."""

    embeddings: AnyFloats
    labels: AnyArray
    roles: Texts | None


def embed_files(
    embedder: Embedder,
    files: Sequence[LabelledFile],
    read: ReadImage,
    *,
    on_progress: OnProgress = no_progress,
) -> FloatArray:
    """Embed the images of a data set; gives (n, d) float32, L2-normalized."""
    embeddings = np.empty((len(files), embedder.bundle.dim), np.float32)
    for start in range(0, len(files), _BATCH):
        batch = files[start : start + _BATCH]
        embeddings[start : start + len(batch)] = _embed(embedder, batch, read)
        on_progress("embed", start + len(batch), len(files))
    return embeddings


def _embed(embedder: Embedder, files: Sequence[LabelledFile], read: ReadImage) -> FloatArray:
    try:
        return embedder.embed([read(file) for file in files])
    except ImageError as error:
        if len(files) == 1:
            raise DatasetError(f"image '{files[0].path}' cannot be used: {error.reason}") from error
    # One by one, the image that cannot be used gives its name.
    return np.concatenate([_embed(embedder, [file], read) for file in files])


def read_embeddings(path: Path) -> StoredEmbeddings:
    """Read an `.npz` file with the arrays `embeddings`, `labels` and optionally `roles`."""
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
    if embeddings.ndim != 2 or not np.issubdtype(embeddings.dtype, np.floating):
        raise EvaluationError(
            f"'{path}' has embeddings of shape {embeddings.shape} and type {embeddings.dtype}, "
            "expected (n, d) floating-point numbers"
        )
    for name, array in (("labels", labels), ("roles", roles)):
        if array is not None and array.shape != (len(embeddings),):
            raise EvaluationError(
                f"'{path}' has {name} of shape {array.shape}, expected ({len(embeddings)},)"
            )
    return StoredEmbeddings(embeddings, labels, None if roles is None else roles.astype(str))
