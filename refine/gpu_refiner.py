"""Refinement of whole galleries on a GPU: `refiner.onnx` in ONNX Runtime, a large batch at a time.

Queries, and items that are added later, are refined on the processor as ever: they are few, and a query has
to get the same bits in every batch. What the GPU makes of an item is that up to some 1e-6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from vicinal.calibration.arrays import AnyInts, FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.errors import BundleError, NetworkDeviceError, in_one_line
from vicinal.models.refiner_manifest import REFINER_FILE
from vicinal.models.runtime import CPU, Device, offers_cuda, open_session, session_provider
from vicinal.refine.neighbor_features import N_RADII

if TYPE_CHECKING:
    import onnxruntime as ort

logger = logging.getLogger(__name__)


# Fewer are refined on a processor before a GPU is at hand.
_FEWEST = 10_000
# Contexts that are sent at a time. Sending them takes longer than a step computes, so that more gain nothing.
_CONTEXT_BYTES = 2**26


def refined_on_gpu(
    bundle: ModelBundle,
    embeddings: FloatArray,
    neighbor_ids: AnyInts,
    rows: AnyInts,
    *,
    n_steps: int,
    device: Device,
    on_progress: Callable[[int, int], None] | None = None,
) -> FloatArray | None:
    """Refine items of a gallery as `ContextRefiner.refine_gallery` does.

    None where the processor has to refine them: it is asked for, there are few, or `auto` finds no GPU that
    can.
    """
    if len(rows) < _FEWEST or device == "cpu" or (device == "auto" and not offers_cuda()):
        return None
    try:
        session = _open(bundle, device)
        if session_provider(session) == CPU:
            return None
        return _refined(session, (embeddings, neighbor_ids, rows), n_steps, on_progress)
    except (BundleError, NetworkDeviceError) as error:
        if device != "auto":
            raise
        logger.warning("items are refined on the processor: %s", error)
        return None


def _open(bundle: ModelBundle, device: Device) -> ort.InferenceSession:
    section = bundle.manifest.refiner
    if section is None:
        raise BundleError(f"bundle '{bundle.name}' has no refiner")
    return open_session(bundle.path / REFINER_FILE, section.files[REFINER_FILE], device=device)


def _refined(
    session: ort.InferenceSession,
    gallery: tuple[FloatArray, AnyInts, AnyInts],
    n_steps: int,
    on_progress: Callable[[int, int], None] | None,
) -> FloatArray:
    """See `refined_on_gpu`."""
    embeddings, neighbor_ids, rows = gallery
    n, row_bytes = len(rows), neighbor_ids.shape[1] * embeddings.shape[1] * embeddings.itemsize
    size = max(1, _CONTEXT_BYTES // max(1, row_bytes))
    refined = np.empty((n, embeddings.shape[1]), np.float32)
    for start in range(0, n, size):
        part = slice(start, start + size)
        try:
            refined[part] = _steps(session, embeddings, neighbor_ids[part], rows[part])[:, n_steps - 1]
        except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
            raise NetworkDeviceError(f"the GPU that refines failed: {in_one_line(error)}") from error
        if on_progress:
            on_progress(min(start + size, n), n)
    return refined


def _steps(
    session: ort.InferenceSession, embeddings: FloatArray, neighbor_ids: AnyInts, rows: AnyInts
) -> FloatArray:
    """(b, T, d) embeddings after each step."""
    inputs = {
        "query": embeddings[rows],
        "context": embeddings[np.maximum(neighbor_ids, 0)],
        "mask": neighbor_ids >= 0,
        # Lengths are those of queries.
        "radii": np.zeros((*neighbor_ids.shape, N_RADII), np.float32),
    }
    taken = {one.name: inputs[one.name] for one in session.get_inputs()}
    return np.asarray(session.run(["steps"], taken)[0], dtype=np.float32)
