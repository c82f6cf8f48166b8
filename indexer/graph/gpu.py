"""Faiss on GPUs: indexes that are searched there, neighbor lists, and products of many pairs.

It takes what https://github.com/facebookresearch/faiss/wiki/Faiss-on-the-GPU describes, and what is free on a
GPU from `nvidia-smi`; where that is missing, Faiss finds out.

When a version is opened, its index, made for processors, is copied to a GPU: inverted lists of a kind that
Faiss has there as they are, and for every other kind all embeddings in float16, compared one by one.
Candidates and neighbors are scored exactly on the processor, so answers depend on the device only in what an
approximate index misses. Where a GPU cannot, and was not asked for by name, the processor does, and says why.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask, ShortInts
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.candidate_source import CandidateSource
from vicinal.indexer.graph.vector_index import FaissIndex, import_faiss
from vicinal.models.errors import in_one_line, install_command
from vicinal.models.progress import OnProgress, no_progress

logger = logging.getLogger(__name__)

_ASKED = "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version"
_SECONDS = 10.0
# Of a GPU and for each index or comparison, for Faiss to work in; it would take 1.5 GB.
WORK_BYTES = 128 * 2**20
# Faiss' limit on GPUs; more come from the processor.
MOST_NEIGHBORS = 2048

# The indexes that Faiss has on GPUs, with the code of a vector.
_LISTS = re.compile(r"IVF(?P<lists>\d+),(?:(?P<plain>Flat|SQ4|SQ8|SQfp16)|PQ(?P<bytes>\d+)(?:x8)?)")
_BYTES_A_VALUE = {"Flat": 4.0, "SQfp16": 2.0, "SQ8": 1.0, "SQ4": 0.5}
_ID_BYTES = 8

# Fewer are compared on a processor before a GPU is at hand.
_FEWEST = 10_000
# All pairs of n items take n^2 d products, and finding the nearest in them about as long as 128 dimensions
# more. A small GPU of a server is taken to make 2.5e12 a second, and may take ten minutes; two cores take
# four minutes for a million items cell by cell, and miss a hundredth (docs/RESULTS.md).
_SELECTION_DIMS, _MOST_PRODUCTS = 128, 1.5e15
# Items are sent to the GPU with every block of queries; with so many, that takes less time than comparing.
_QUERIES = 65_536
# Of the memory that is free: what is sent is there beside copies and tiles of Faiss.
_SHARE = 0.5


@dataclass(frozen=True)
class Gpu:
    """GPU of this machine by its number in `CUDA_DEVICE_ORDER=PCI_BUS_ID`; memory is in bytes."""

    number: int
    uuid: str
    name: str
    total: int
    free: int
    driver: str


def gpus() -> list[Gpu]:
    """GPUs that CUDA may use (`CUDA_VISIBLE_DEVICES`); none where no driver is installed."""
    try:
        told = subprocess.run(
            ["nvidia-smi", _ASKED, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        ).stdout
        return _visible([_gpu(line) for line in told.splitlines()])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise IndexDeviceError(f"the driver of NVIDIA does not answer: {in_one_line(error)}") from error


def faiss_gpus(device: str) -> Sequence[int]:
    """Numbers of Faiss's GPUs for `cpu`, `cuda` (the first), `cuda:N`, or `auto` (all there are)."""
    if device == "cpu":
        return ()
    faiss = import_faiss()
    has_gpus = hasattr(faiss, "StandardGpuResources")
    n_gpus = int(faiss.get_num_gpus()) if has_gpus else 0
    if device == "auto":
        return range(n_gpus)
    number = int(device.partition(":")[2] or 0)
    if number < n_gpus:
        return (number,)
    there = f"finds {n_gpus} GPUs" if has_gpus else f"is built without GPUs: {install_command('gpu')}"
    raise IndexDeviceError(f"device '{device}' was asked for, and this Faiss {there}")


def left_to_processor(device: str, error: IndexDeviceError, what: str) -> None:
    """Tell why the processor does what a GPU was to do; of a GPU that was asked for, its failure."""
    if device != "auto":
        raise error
    logger.warning("%s on the processor: %s", what, error)


class GpuIndex:
    """Index on GPUs, see `FaissIndex`; if they fail, so does the search; the processor makes later ones."""

    def __init__(self, behind: FaissIndex, moved: Any, where: str) -> None:
        self._behind = behind
        self._moved = moved
        self._where = where
        self._searching = threading.Lock()
        self.failure: str | None = None

    @property
    def spec(self) -> str:
        """The factory string."""
        return self._behind.spec

    @property
    def is_exact(self) -> bool:
        """Never: float16 rounds."""
        return False

    def n_fetched(self, n: int) -> int:
        """Number for an index that is not exact, see `FaissIndex.n_fetched`."""
        return self._behind.candidates.fetched(n)

    @property
    def can_select(self) -> bool:
        """Tell whether the index on the processor can, which answers searches among some items."""
        return self._behind.can_select

    @property
    def device(self) -> str:
        """Device of the searches."""
        return self._where if self.failure is None else self._behind.device

    needs_filter = False

    def wider(self, times: int) -> FaissIndex:
        """The index on the processor, of which more lists are looked into."""
        return self._behind.wider(times)

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """Ints of the n nearest items; see `FaissIndex.search`."""
        if among is None and n <= MOST_NEIGHBORS and len(queries):
            with self._searching:
                if self.failure is None:
                    return self._on_gpu(np.ascontiguousarray(queries, dtype=np.float32), n)
        return self._behind.search(queries, n, among, filter)

    def _on_gpu(self, queries: FloatArray, n: int) -> Ints:
        try:
            with _working(f"{self._where} failed"):
                return np.asarray(self._moved.search(queries, n)[1])
        except IndexDeviceError as error:
            self.failure, self._moved = str(error), None
            logger.error("%s; searches go on on the processor", error)
            raise


class IndexDevices:
    """Devices of indexes: `cpu`, `cuda` (the first GPU), `cuda:N`, or `auto`: that with most memory free, but
    the processor where none has room.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        # What is free is known once the index before is there.
        self._one_at_a_time = threading.Lock()
        self._noting = threading.Lock()
        self._moved: weakref.WeakSet[GpuIndex] = weakref.WeakSet()
        self._refused: weakref.WeakKeyDictionary[FaissIndex, str] = weakref.WeakKeyDictionary()
        if device != "auto":
            # A GPU that is asked for and not there is told of at once.
            _ = self._numbers

    @cached_property
    def _numbers(self) -> Sequence[int]:
        return faiss_gpus(self._device)

    @property
    def used(self) -> list[str]:
        """Devices of the indexes that are open, sorted."""
        with self._noting:
            on_gpus = {one.device for one in self._moved}
            return sorted(on_gpus | {"cpu"} if self._refused else on_gpus) or ["cpu"]

    @property
    def problems(self) -> list[str]:
        """Reasons why indexes are on the processor that were to be on a GPU."""
        with self._noting:
            failures = [one.failure for one in self._moved if one.failure is not None]
            return sorted({*failures, *self._refused.values()})

    def placed(self, index: FaissIndex, embeddings: FloatArray) -> CandidateSource:
        """An index of some embeddings, where it is to be searched."""
        if not self._numbers or not len(embeddings):
            return index
        try:
            with self._one_at_a_time:
                moved = self._copied(index, embeddings)
        except IndexDeviceError as error:
            left_to_processor(self._device, error, "an index stays")
            with self._noting:
                self._refused[index] = str(error)
            return index
        with self._noting:
            self._moved.add(moved)
        return moved

    def _copied(self, index: FaissIndex, embeddings: FloatArray) -> GpuIndex:
        number = self._with_room(gpu_bytes(index.spec, *embeddings.shape))
        where = f"cuda:{number}"
        faiss = import_faiss()
        options = faiss.GpuClonerOptions()
        options.useFloat16 = True
        has_lists = _LISTS.fullmatch(index.spec) is not None
        # Faiss' own way chooses the nearest of a query on one multiprocessor.
        options.use_cuvs = not has_lists and "CUVS" in faiss.get_compile_options()
        with _working(f"{where} does not take the index"):
            source = index.as_faiss if has_lists else faiss.IndexFlatIP(embeddings.shape[1])
            moved = faiss.index_cpu_to_gpu(_resources(), number, source, options)
            if has_lists:
                faiss.GpuParameterSpace().set_index_parameter(moved, "nprobe", index.n_probed)
            else:
                moved.add(embeddings)
        return GpuIndex(index, moved, where)

    def _with_room(self, n_bytes: int) -> int:
        """The GPU for an index of a size."""
        number, room = _roomiest(self._numbers)
        if room is not None and n_bytes > room - WORK_BYTES:
            raise _too_large(n_bytes, room - WORK_BYTES, f"cuda:{number} has")
        return number


def gpu_bytes(spec: str, n_items: int, dim: int) -> int:
    """Memory that an index takes on a GPU, in bytes."""
    found = _LISTS.fullmatch(spec)
    if found is None:
        return 2 * dim * n_items
    code = float(found["bytes"]) if found["bytes"] else _BYTES_A_VALUE[found["plain"]] * dim
    return int((code + _ID_BYTES) * n_items) + 4 * dim * int(found["lists"])


class GpuComparison:
    """Comparison of vectors on the GPU with most memory free; not for two threads."""

    def __init__(self, number: int, free: int | None) -> None:
        self.name = f"cuda:{number}"
        self.free = free
        self._number = number
        with _working(f"{self.name} failed"):
            self._resources = _resources()

    @classmethod
    def of(cls, device: str) -> Self | None:
        """The one that a device stands for; None for the processor."""
        numbers = faiss_gpus(device)
        return cls(*_roomiest(numbers)) if numbers else None

    def nearest(self, queries: FloatArray, items: FloatArray, n: int, *, most: int) -> Ints:
        """(B, n) positions of the items nearest to each query; at most `most` items are there at once."""
        faiss = import_faiss()
        # Parts of about one size: of a last one with fewer items than are asked for, Faiss makes some up.
        n_parts = -(-len(items) // most)
        with _working(f"{self.name} failed"):
            return np.asarray(
                faiss.knn_gpu(
                    self._resources,
                    np.ascontiguousarray(queries),
                    items,
                    n,
                    metric=faiss.METRIC_INNER_PRODUCT,
                    device=self._number,
                    vectorsMemoryLimit=items.itemsize * items.shape[1] * -(-len(items) // n_parts),
                )[1]
            )

    def products(self, queries: FloatArray, items: FloatArray) -> FloatArray:
        """(B, m) inner products of (B, d) queries with (m, d) items, summed in float32."""
        faiss = import_faiss()
        # What is sent and what comes back.
        n_bytes = WORK_BYTES + queries.nbytes + items.nbytes + 4 * len(queries) * len(items)
        if self.free is not None and n_bytes > self.free:
            raise IndexDeviceError(
                f"{self.name} has {self.free // 2**20:,} MiB free, a block of pairs takes "
                f"{-(-n_bytes // 2**20):,}"
            )
        with _working(f"{self.name} failed"):
            return np.asarray(
                faiss.pairwise_distance_gpu(
                    self._resources,
                    np.ascontiguousarray(queries),
                    np.ascontiguousarray(items),
                    metric=faiss.METRIC_INNER_PRODUCT,
                    device=self._number,
                )
            )


def gpu_candidates(
    embeddings: FloatArray, n_candidates: int, device: str, *, on_progress: OnProgress = no_progress
) -> ShortInts | None:
    """(n, k) items near each of (n, d) L2-normalized ones, itself too, nearest first; None where the
    processor is asked for or faster, or `auto` finds no GPU that can.
    """
    n, dim = embeddings.shape
    is_long = float(n) * n * (dim + _SELECTION_DIMS) > _MOST_PRODUCTS
    if n < _FEWEST or n_candidates > MOST_NEIGHBORS or is_long:
        return None
    try:
        gpu = GpuComparison.of(device)
        return None if gpu is None else _compared(gpu, embeddings, n_candidates, on_progress)
    except IndexDeviceError as error:
        left_to_processor(device, error, "neighbors are found")
        return None


def _compared(
    gpu: GpuComparison, embeddings: FloatArray, n_candidates: int, on_progress: OnProgress
) -> ShortInts:
    """See `gpu_candidates`."""
    n, dim = embeddings.shape
    n_queries, n_items = min(_QUERIES, n), n
    if gpu.free is not None:
        room, per_item = int(_SHARE * (gpu.free - WORK_BYTES)), 4 * dim
        # Ints of 8 bytes and products of 4.
        per_query = per_item + 12 * n_candidates
        n_queries = min(n_queries, room // 4 // per_query)
        n_items = min(n, (room - n_queries * per_query) // per_item)
    # Fewer would be sent more often than they are worth.
    if n_queries < 1 or n_items < min(n, _FEWEST):
        raise IndexDeviceError(
            f"{gpu.name} has {(gpu.free or 0) / 2**30:.1f} GiB free, too little to compare {n:,} items"
        )
    found = np.empty((n, n_candidates), np.int32)
    for start in range(0, n, n_queries):
        rows = slice(start, start + n_queries)
        found[rows] = gpu.nearest(embeddings[rows], embeddings, n_candidates, most=n_items)
        on_progress("neighbors", min(start + n_queries, n), n)
    return found


def _roomiest(numbers: Sequence[int]) -> tuple[int, int | None]:
    """The GPU with most memory free, and how many bytes that are; None where the driver's tool is missing."""
    free = {gpu.number: gpu.free for gpu in gpus() if gpu.number in numbers}
    number = max(free, key=lambda one: free[one], default=numbers[0])
    return number, free.get(number)


def _resources() -> Any:
    """The memory and streams that Faiss works with on a GPU; not for two threads."""
    resources = import_faiss().StandardGpuResources()
    resources.setTempMemory(WORK_BYTES)
    return resources


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Tell by the project's own error what failed in Faiss."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise IndexDeviceError(f"{what}: {in_one_line(error)}") from error


def _too_large(needed: int, free: int, who: str) -> IndexDeviceError:
    return IndexDeviceError(
        f"the index needs {needed / 2**30:.1f} GiB on a GPU, and {who} {max(0, free) / 2**30:.1f} GiB free"
    )


def _gpu(line: str) -> Gpu:
    number, uuid, name, total, free, driver = (one.strip() for one in line.split(","))
    return Gpu(int(number), uuid, name, int(total) * 2**20, int(free) * 2**20, driver)


def _visible(there: list[Gpu]) -> list[Gpu]:
    """GPUs that the environment does not hide, counted anew."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return there
    seen: list[Gpu] = []
    for one in map(str.strip, asked.split(",")):
        known = [gpu for gpu in there if one and (one == str(gpu.number) or gpu.uuid.startswith(one))]
        # CUDA hides all that follow one that it does not know.
        if not known:
            break
        seen.append(replace(known[0], number=len(seen)))
    return seen
