"""Search space: the vectors of items, as they are or refined, some of which count as not in the gallery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from cachetools import LRUCache

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.indexer.errors import BundleMismatchError, IndexDeviceError
from vicinal.indexer.graph.gpu import GpuComparison, left_to_processor
from vicinal.indexer.jobs.refinement import open_refined
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.indexer.views.refined_view import RefinedSpace, RefinedView
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.runtime import Device
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.reranking import kth_similarities
from vicinal.service.search.pipeline import Pipeline

# Of (B, d) queries and (w, d) items, float32 and L2-normalized: (B, w) cosine similarities in [-1, 1].
BlockProducts: TypeAlias = Callable[[FloatArray, FloatArray], Floats]

# Two cores make the products of fewer pairs in about a second, before a GPU is at hand.
_FEWEST_PAIRS = 2**26
# Bytes of galleries without some items that are remembered: the search and the pairs of a calibration's chunk
# ask for those of all its queries again and again.
_MOST_REMEMBERED = 128 * 2**20
# Of one, beside its arrays.
_VIEW_BYTES = 2**14
# So many are compared with all positions one after the other.
_FEW_EXCLUDED = 16


def exact_products(queries: FloatArray, items: FloatArray) -> Floats:
    """(B, w) cosine similarities of (B, d) and (w, d) unit rows, summed in float64 on the processor."""
    products = queries.astype(np.float64) @ items.astype(np.float64).T
    return np.clip(products, -1.0, 1.0, out=products)


def block_products(device: str, n_pairs: int) -> BlockProducts:
    """Function that makes the products of many pairs, block by block, as a calibration needs. Sums in float32
    on a GPU and in float64 on the processor differ by 1e-7, as embeddings are rounded.
    """
    gpu: GpuComparison | None = None

    def lose(error: IndexDeviceError) -> None:
        nonlocal gpu
        left_to_processor(device, error, "pairs are compared")
        gpu = None

    def products(queries: FloatArray, items: FloatArray) -> Floats:
        if gpu is not None:
            try:
                found = gpu.products(queries, items)
                return np.clip(found, -1.0, 1.0, out=found).astype(np.float64)
            except IndexDeviceError as error:
                lose(error)
        return exact_products(queries, items)

    if n_pairs >= _FEWEST_PAIRS:
        try:
            gpu = GpuComparison.of(device)
        except IndexDeviceError as error:
            lose(error)
    return exact_products if gpu is None else products


def is_excluded(positions: Ints, excluded: Sequence[Ints]) -> Mask:
    """(B, ...) whether positions are among those that are excluded for their query."""
    most = max(map(len, excluded), default=0)
    if most > _FEW_EXCLUDED:
        return np.stack([np.isin(row, out) for row, out in zip(positions, excluded, strict=True)])
    found = np.zeros(positions.shape, dtype=bool)
    for place in range(most):
        # -2 is no position.
        column = np.array([out[place] if place < len(out) else -2 for out in excluded])
        found |= positions == column.reshape(-1, *(1,) * (positions.ndim - 1))
    return found


class InitialSpace:
    """The items as they were embedded."""

    def __init__(self, view: GalleryView) -> None:
        self.view = view

    @property
    def device(self) -> str:
        """Device that searches their index, such as `cpu` or `cuda:0`."""
        return self.view.snapshot.index.device

    def nearest(
        self, queries: FloatArray, n: int, excluded: Sequence[Ints], selection: Selection | None
    ) -> Ints:
        """(B, w) positions, the n nearest of each query among them, excluded ones too; -1 for padding."""
        n += max(len(out) for out in excluded)
        if (
            selection is None
            and n >= self.view.n_positions == len(self.view)
            and self.view.snapshot.index.is_exact
        ):
            # All items are the nearest ones, in any order.
            return np.broadcast_to(np.arange(len(self.view)), (len(queries), len(self.view)))
        return self.view.nearest(queries, max(1, min(len(self.view), n)), selection)

    def vectors(self, positions: Ints, _excluded: Sequence[Ints]) -> FloatArray:
        """(B, n, d) embeddings at (B, n) positions; any values at -1."""
        return self.view.vectors(positions)

    def products(self, queries: FloatArray, positions: Ints, _excluded: Sequence[Ints]) -> FloatArray:
        """(B, n) inner products with the items at (B, n) positions, summed in float32; any values at -1."""
        return self.view.products(queries, positions)

    def kth_similarities(self, positions: Ints, excluded: Sequence[Ints], k: int) -> FloatArray:
        """(B, n, 2) similarity of items to their (k-1)-th and k-th neighbor, themselves the first."""
        lists = self.view.neighbor_similarities(positions)
        removed = None
        # Lists of added items can name items that were gone before this view was opened.
        if self.view.n_changes or any(len(out) for out in excluded):
            ids = self.view.neighbor_positions(positions)
            removed = is_excluded(ids, excluded) | (ids < 0)
        return kth_similarities(lists, k, removed)

    def similarities(
        self,
        queries: FloatArray,
        _excluded: Sequence[Ints],
        columns: slice,
        multiply: BlockProducts = exact_products,
    ) -> Floats:
        """(B, w) float64 cosine similarity to the items at some positions."""
        return multiply(queries, self.view.vectors(np.arange(columns.start, columns.stop)))


class RefinedItemSpace:
    """The items as they were refined; the methods are those of `InitialSpace`."""

    def __init__(self, view: RefinedView) -> None:
        self.view = view
        self._remembered: LRUCache[bytes, RefinedView] = LRUCache(_MOST_REMEMBERED, getsizeof=_size)
        # Threads score parts of one batch.
        self._lock = threading.Lock()

    @property
    def device(self) -> str:
        """See `InitialSpace`."""
        return self.view.built.stored.index.device

    def nearest(
        self, queries: FloatArray, n: int, excluded: Sequence[Ints], selection: Selection | None
    ) -> Ints:
        """The nearest without the excluded ones."""
        n_wanted = max(1, min(len(self.view), n))
        if not any(len(out) for out in excluded):
            return self.view.nearest(queries, n_wanted, selection)
        rows = [
            self._without(out).nearest(query[None], n_wanted, selection)[0]
            for query, out in zip(queries, excluded, strict=True)
        ]
        width = max((len(row) for row in rows), default=0)
        return np.stack([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])

    def vectors(self, positions: Ints, excluded: Sequence[Ints]) -> FloatArray:
        """See `InitialSpace`."""
        pairs = zip(positions, excluded, strict=True)
        return np.stack([self._without(out).vectors(row) for row, out in pairs])

    def products(self, queries: FloatArray, positions: Ints, excluded: Sequence[Ints]) -> FloatArray:
        """See `InitialSpace`."""
        rows = zip(queries, positions, excluded, strict=True)
        return np.stack([self._without(out).vectors(near) @ query for query, near, out in rows])

    def kth_similarities(self, positions: Ints, excluded: Sequence[Ints], k: int) -> FloatArray:
        """See `InitialSpace`."""
        pairs = zip(positions, excluded, strict=True)
        return kth_similarities(
            np.stack([self._without(out).neighbor_similarities(row) for row, out in pairs]), k
        )

    def similarities(
        self,
        queries: FloatArray,
        excluded: Sequence[Ints],
        columns: slice,
        multiply: BlockProducts = exact_products,
    ) -> Floats:
        """See `InitialSpace`."""
        similarities = multiply(queries, self.view.vectors(np.arange(columns.start, columns.stop)))
        for row, out in enumerate(excluded):
            view = self._without(out)
            here = (view.changed >= columns.start) & (view.changed < columns.stop)
            changed = exact_products(queries[row : row + 1], view.changed_vectors[here])
            similarities[row, view.changed[here] - columns.start] = changed[0]
        return similarities

    def _without(self, positions: Ints) -> RefinedView:
        if not len(positions):
            return self.view
        key = positions.tobytes()
        with self._lock:
            view = self._remembered.get(key)
        if view is None:
            view = self.view.without(positions)
            with self._lock:
                self._remembered[key] = view
        return view


SearchSpace: TypeAlias = InitialSpace | RefinedItemSpace


def _size(view: RefinedView) -> int:
    """Bytes that a view holds on its own; never more than all that is remembered."""
    own = view.changed.nbytes + view.changed_vectors.nbytes + view.view.dead.nbytes
    return min(_VIEW_BYTES + own, _MOST_REMEMBERED)


@dataclass(frozen=True)
class OpenedRefiner:
    """Refiner, with all that a pipeline refines with."""

    refiner: ContextRefiner
    space: RefinedSpace | None  # None where items are searched as they are


def refinement_plan(pipeline: Pipeline, bundle: ModelBundle, device: Device = "cpu") -> RefinementPlan | None:
    """Plan of refining the items of new versions, for a service with a pipeline; None without a refiner."""
    if bundle.manifest.refiner is None:
        return None
    refiner, refine = ContextRefiner(bundle), pipeline.refine
    n_steps = refine.steps or refiner.n_steps
    return RefinementPlan(refiner, n_steps, by_default=refine.of_gallery, device=device)


def open_refiner(
    pipeline: Pipeline, refiner: ContextRefiner | None, gallery: str, snapshot: Snapshot
) -> OpenedRefiner | None:
    """Open what a pipeline needs; None when it refines nothing, or the bundle has no refiner."""
    refine = pipeline.refine
    if refine.sides == "off" or refiner is None:
        return None
    if refiner.bundle.fingerprint != snapshot.manifest.bundle:
        raise BundleMismatchError(gallery, refiner.bundle.fingerprint, snapshot.manifest.bundle)
    if not refine.of_gallery:
        return OpenedRefiner(refiner, None)
    return OpenedRefiner(refiner, open_refined(gallery, snapshot, RefinementPlan(refiner, refine.steps)))
