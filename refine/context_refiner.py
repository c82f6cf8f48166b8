"""Context refiner: embeddings that have attended to their neighbors (inference, without torch).

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR), algorithm 2:
`e^t = normalise(e^{t-1} + CA_t(e^{t-1}, C, C))` for t = 1 .. T, where the context C is the k nearest
neighbors of e^0 among the initial embeddings of the gallery, without the item itself, the same in all steps.

A GPU refines large galleries by `refiner.onnx`, up to some 1e-6 as a processor does. Queries, and items that
are added later, are refined on the processor: a query has to get the same bits in every batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.models.bundle import ModelBundle
from vicinal.models.errors import BundleError, NetworkDeviceError, in_one_line
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE
from vicinal.models.runtime import CPU, Device, offers_cuda, open_session, session_provider
from vicinal.refine.errors import RefinementError, RefinerMismatchError, RefinerNotFoundError
from vicinal.refine.neighbor_features import N_RADII, RADIUS_RANKS
from vicinal.refine.step import log_lengths, moved_rows, normalized_rows
from vicinal.refine.weights import Weights, load_weights

if TYPE_CHECKING:
    import onnxruntime as ort

logger = logging.getLogger(__name__)

# Rows that are refined at a time: their contexts take 4 MB at 8 neighbors and 512 dimensions, and every
# intermediate result about as much.
_CHUNK = 256
# Fewer are refined on a processor before a GPU is at hand.
_FEWEST = 10_000
# Contexts that are sent at a time. Sending them takes longer than a step computes, so that more gain nothing.
_CONTEXT_BYTES = 2**26


@dataclass(frozen=True)
class Refinement:
    """Refined batch.

    Attributes:
        steps: (n, t, d) float32, L2-normalized, the embedding after each step.
        attention: (n, t, k) float32, the mean of the heads in each step: sums to 1 over the neighbors that
            are there, and is 0 for others and for an item without any.
        lengths: (n, t) float32 in (0, 1], how long each embedding is as a query: all 1 without a level. Items
            of a gallery have length 1.
    """

    steps: FloatArray
    attention: FloatArray
    lengths: FloatArray

    @property
    def embeddings(self) -> FloatArray:
        """(n, d) embeddings after the last step."""
        return self.steps[:, -1]

    @property
    def queries(self) -> FloatArray:
        """(n, d) embeddings after the last step with their lengths, to be compared with unit items."""
        return self.steps[:, -1] * self.lengths[:, -1:]


@dataclass(frozen=True)
class Neighbors:
    """Neighbors (n, k, d) of a batch, their mask (n, k) and radii (n, k, 3), None for no lengths."""

    contexts: FloatArray
    mask: Mask
    radii: FloatArray | None = None

    def __getitem__(self, rows: slice | Mask) -> Neighbors:
        radii = None if self.radii is None else self.radii[rows]
        return Neighbors(self.contexts[rows], self.mask[rows], radii)

    def cleared(self) -> Neighbors:
        """Put zeros where there is no neighbor."""
        if self.mask.all():
            return self
        there, zero = self.mask[..., None], np.float32(0.0)
        radii = None if self.radii is None else np.where(there, self.radii, zero)
        return Neighbors(np.where(there, self.contexts, zero), self.mask, radii)


class ContextRefiner:
    """Refines embeddings with a bundle's refiner; `weights` that are tried stand in place of its file's.

    A query is refined to the same bits alone and in any batch; items of a gallery, which are refined
    together, to some 1e-7.

    Attributes:
        fingerprint: Identity of everything that a refined embedding depends on, apart from the embeddings.
        n_steps: Steps T.
        n_neighbors: Neighbors k that it was trained with.
        has_level: Whether queries get a length.
        weights: Arrays of each step; see `refine.weights.parameter_shapes`.

    Raises:
        RefinerNotFoundError: The bundle has none.
        RefinerMismatchError: The refiner was trained on the embeddings of another bundle.
        RefinementError: The weights are not of this refiner.
    """

    def __init__(self, bundle: ModelBundle, *, weights: Sequence[Weights] | None = None) -> None:
        manifest = bundle.manifest.refiner
        if manifest is None:
            raise RefinerNotFoundError(bundle.name)
        if manifest.backbone_fingerprint != bundle.fingerprint:
            raise RefinerMismatchError(bundle.name, bundle.fingerprint, manifest.backbone_fingerprint)
        self.bundle = bundle
        self.manifest = manifest
        self.architecture = manifest.architecture
        self.fingerprint = manifest.fingerprint
        self.n_steps = manifest.architecture.n_steps
        self.n_neighbors = manifest.architecture.n_neighbors
        self.has_level = manifest.architecture.level
        file = bundle.refiner_path / REFINER_WEIGHTS_FILE
        self.weights = load_weights(file, manifest.architecture) if weights is None else list(weights)

    def attend(
        self,
        queries: npt.ArrayLike,
        contexts: npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        *,
        radii: npt.ArrayLike | None = None,
        n_steps: int | None = None,
    ) -> Refinement:
        """Refine embeddings with their neighbors, and tell which neighbor weighed how much.

        An embedding without any neighbor stays as it is. RefinementError tells of shapes that do not fit.

        Args:
            queries: (n, d) initial embeddings, L2-normalized.
            contexts: (n, k, d) initial embeddings of their neighbors, L2-normalized, in any order, for any k.
            mask: (n, k) where there is a neighbor; None where all are there.
            radii: (n, k, 3) similarities of the neighbors to their own neighbors, for the lengths of queries;
                see `refine.neighbor_features.level_features`. None leaves all lengths 1.
            n_steps: Steps t after which to stop; None does all.
        """
        n_steps = self._checked_steps(n_steps)
        rows, near = self._checked(queries, contexts, mask, radii)
        steps = np.empty((len(rows), n_steps, self.architecture.dim), np.float32)
        attention = np.empty((len(rows), n_steps, near.mask.shape[1]), np.float32)
        lengths = np.empty(steps.shape[:2], np.float32)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            one = self._run(rows[part], near[part], n_steps)
            steps[part], attention[part], lengths[part] = one.steps, one.attention, one.lengths
        return Refinement(steps, attention, lengths)

    def refine_gallery(
        self,
        embeddings: FloatArray,
        neighbor_ids: npt.ArrayLike,
        *,
        rows: npt.ArrayLike | None = None,
        n_steps: int | None = None,
        device: Device = "cpu",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> FloatArray:
        """Refine the items of a gallery with their neighbors in it; gives (m, d) float32, L2-normalized.

        A million items with 512 dimensions need what they and the result occupy, 4 GB, and some ten MB more.

        Args:
            embeddings: (n, d) float32 initial embeddings, L2-normalized; may be a memory-mapped file.
            neighbor_ids: (m, K) positions of the neighbors, nearest first, without the item itself, -1 where
                there is none; the first `n_neighbors` are used. m is n, or the length of `rows`.
            rows: (m,) positions of the items to refine; None refines all.
            n_steps: Steps t after which to stop; None does all.
            device: Where; see `models.runtime.open_session`. The processor refines what is too little for a
                GPU, and with `auto` all that no GPU can.

        Raises:
            RefinementError: The shapes do not fit, a position is out of range, or `n_steps` is.
            BundleError: A GPU is asked for by `cuda` or `cuda:N`, and is not to be had.
            NetworkDeviceError: It failed.
        """
        n_steps = self._checked_steps(n_steps)
        ids = np.asarray(neighbor_ids)[:, : self.n_neighbors]
        items = np.arange(len(embeddings)) if rows is None else np.asarray(rows)
        self._check_gallery(embeddings, ids, items)
        on_gpu = self._refined_on_gpu(embeddings, ids, items, n_steps, device, on_progress)
        if on_gpu is not None:
            return on_gpu
        refined = np.empty((len(items), self.architecture.dim), np.float32)
        for start in range(0, len(items), _CHUNK):
            part = slice(start, start + _CHUNK)
            near = Neighbors(embeddings[np.maximum(ids[part], 0)], ids[part] >= 0)
            refined[part] = self._run(embeddings[items[part]], near, n_steps, together=True).embeddings
            if on_progress:
                on_progress(min(start + _CHUNK, len(items)), len(items))
        return refined

    def _refined_on_gpu(
        self,
        embeddings: FloatArray,
        ids: Ints,
        items: Ints,
        n_steps: int,
        device: Device,
        on_progress: Callable[[int, int], None] | None,
    ) -> FloatArray | None:
        """Refine items on a GPU; None where the processor has to: asked, of few, or `auto` finds no GPU."""
        if len(items) < _FEWEST or device == "cpu" or (device == "auto" and not offers_cuda()):
            return None
        if REFINER_FILE not in self.manifest.files:
            logger.info("refiner %s has no graph for a GPU: the processor refines", self.fingerprint)
            return None
        path, checksum = self.bundle.refiner_path / REFINER_FILE, self.manifest.files[REFINER_FILE]
        try:
            session = open_session(path, checksum, device=device)
            if session_provider(session) == CPU:
                return None
            return _refined(session, embeddings, ids, items, n_steps, on_progress)
        except (BundleError, NetworkDeviceError) as error:
            if device != "auto":
                raise
            logger.warning("items are refined on the processor: %s", error)
            return None

    def _run(
        self, rows: FloatArray, neighbors: Neighbors, n_steps: int, *, together: bool = False
    ) -> Refinement:
        steps = np.repeat(rows[:, None], n_steps, axis=1)
        attention = np.zeros((len(rows), n_steps, neighbors.mask.shape[1]), np.float32)
        lengths = np.ones((len(rows), n_steps), np.float32)
        alone = self.architecture.neighbors == "none"
        has_any = np.logical_or(neighbors.mask.any(axis=1), alone)
        # A slice copies nothing.
        refinable: Mask | slice = slice(None) if has_any.all() else has_any
        initial = rows[refinable, None]
        near = (
            Neighbors(initial, np.full((len(initial), 1), True)) if alone else neighbors[refinable].cleared()
        )
        there = near.mask.astype(np.float32)
        current = initial
        for step, weights in enumerate(self.weights[:n_steps] if len(initial) else ()):
            moved, shares = moved_rows(
                np, weights, self.architecture, current, initial, near.contexts, there, together=together
            )
            current = normalized_rows(moved)
            steps[refinable, step] = current[:, 0]
            if not alone:
                attention[refinable, step] = shares
            if self.has_level and near.radii is not None:
                logs = log_lengths(np, weights, (initial, current), shares, near.contexts, there, near.radii)
                lengths[refinable, step] = np.exp(logs)
        return Refinement(steps, attention, lengths)

    def _checked_steps(self, n_steps: int | None) -> int:
        if n_steps is None:
            return self.n_steps
        if 1 <= n_steps <= self.n_steps:
            return n_steps
        raise RefinementError(
            f"the refiner of bundle '{self.bundle.name}' has {self.n_steps} steps, got n_steps {n_steps}: "
            f"use 1 to {self.n_steps}"
        )

    def _checked(
        self,
        queries: npt.ArrayLike,
        contexts: npt.ArrayLike,
        mask: npt.ArrayLike | None,
        radii: npt.ArrayLike | None,
    ) -> tuple[FloatArray, Neighbors]:
        rows = np.ascontiguousarray(queries, dtype=np.float32)
        neighbors = np.ascontiguousarray(contexts, dtype=np.float32)
        there = np.full(neighbors.shape[:2], True) if mask is None else np.asarray(mask, dtype=np.bool_)
        self._check_width("queries", rows, 2)
        self._check_width("contexts", neighbors, 3)
        if not len(rows) == len(neighbors) or there.shape != neighbors.shape[:2]:
            raise RefinementError(
                f"expected contexts (n, k, d) and a mask (n, k) for {len(rows)} queries, got contexts "
                f"{neighbors.shape} and a mask {there.shape}: give every query its own"
            )
        return rows, Neighbors(neighbors, there, _checked_radii(radii, there))

    def _check_width(self, what: str, array: FloatArray, n_axes: int) -> None:
        dim = self.architecture.dim
        if array.ndim != n_axes or array.shape[-1] != dim:
            shape = "(n, d)" if n_axes == 2 else "(n, k, d)"
            raise RefinementError(
                f"the refiner of bundle '{self.bundle.name}' expects {what} {shape} with d = {dim}, got "
                f"{array.shape}: embed them with this bundle"
            )

    def _check_gallery(self, embeddings: FloatArray, ids: Ints, items: Ints) -> None:
        self._check_width("a gallery's embeddings", embeddings, 2)
        if len(ids) != len(items):
            raise RefinementError(f"{len(items)} items to refine, but neighbor lists of {len(ids)}")
        largest = max(int(ids.max(initial=-1)), int(items.max(initial=-1)))
        if largest >= len(embeddings) or int(items.min(initial=0)) < 0:
            raise RefinementError(
                f"neighbor lists and rows must name items 0 to {len(embeddings) - 1}, got {largest}: "
                "index the gallery again"
            )


def _checked_radii(radii: npt.ArrayLike | None, mask: Mask) -> FloatArray | None:
    if radii is None:
        return None
    near = np.asarray(radii, dtype=np.float32)
    if near.shape != (*mask.shape, N_RADII):
        raise RefinementError(
            f"expected radii {(*mask.shape, N_RADII)}, got {near.shape}: give each neighbor its "
            f"similarity to its nearest neighbors number {', '.join(map(str, RADIUS_RANKS))}"
        )
    return near


def _refined(
    session: ort.InferenceSession,
    embeddings: FloatArray,
    neighbor_ids: Ints,
    rows: Ints,
    n_steps: int,
    on_progress: Callable[[int, int], None] | None,
) -> FloatArray:
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
    session: ort.InferenceSession, embeddings: FloatArray, neighbor_ids: Ints, rows: Ints
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
