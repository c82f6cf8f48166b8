"""Vector indexes in the memory of GPUs, each with the index on the processor behind it.

The file of a version's index is made for processors and stays as it is. When a version is opened, its index
is copied to a GPU: inverted lists of a kind that Faiss has there as they are, and for every other kind all
embeddings in float16, which are compared one by one. Only where HNSW was asked for and this Faiss is built
with cuVS, one GPU makes a graph of its own kind, CAGRA. Candidates are scored exactly afterwards, so that
answers do not depend on where they come from, but for what an approximate index misses.

What Faiss works with on a GPU is not for two threads: each index has a thread of its own, which takes the
searches that wait all at once.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.graph.cagra import MOST_FROM_GRAPH, CagraGraph, becomes_graph, graph_bytes
from vicinal.indexer.graph.gpus import gpus
from vicinal.indexer.graph.vector_index import FaissIndex, import_faiss
from vicinal.models.errors import install_command

logger = logging.getLogger(__name__)

# What Faiss has on GPUs, with the code of a vector.
_LISTS = re.compile(r"IVF(?P<lists>\d+),(?:(?P<plain>Flat|SQ4|SQ8|SQfp16)|PQ(?P<bytes>\d+)(?:x8)?)")
_BYTES_A_VALUE = {"Flat": 4.0, "SQfp16": 2.0, "SQ8": 1.0, "SQ4": 0.5}
_ID_BYTES = 8
# Of a GPU and for each index or comparison, for Faiss to work in.
WORK_BYTES = 128 * 2**20
# Faiss' limit on GPUs; more come from the processor.
MOST_NEIGHBORS = 2048
_MOST_TOGETHER = 1024
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class _Asked:
    queries: FloatArray
    n: int
    found: Future[Ints] = field(default_factory=Future)


@dataclass
class _Held:
    """What the thread of an index has. Nothing of it refers to the index, so that one can be let go of."""

    index: Any
    where: str
    asked: queue.SimpleQueue[_Asked | None] = field(default_factory=queue.SimpleQueue)
    failure: str | None = None


class GpuIndex:
    """An index on GPUs; see `FaissIndex` for the methods of the same names.

    Where the GPU fails, the searches under way fail with it, and all that follow are made on the processor.

    Args:
        behind: The same index on the processor.
        moved: What Faiss made of it on the GPU.
        where: The GPU, such as `cuda:0`.
        most: Neighbors that it can find of a query.
    """

    def __init__(self, behind: FaissIndex, moved: Any, where: str, *, most: int = MOST_NEIGHBORS) -> None:
        self._behind = behind
        self._most = most
        self._held = _Held(moved, where)
        threading.Thread(target=_answer, args=(self._held,), name=f"index on {where}", daemon=True).start()
        weakref.finalize(self, self._held.asked.put, None)

    @property
    def spec(self) -> str:
        """The factory string."""
        return self._behind.spec

    @property
    def is_exact(self) -> bool:
        """Never: float16 rounds."""
        return False

    def n_fetched(self, n: int) -> int:
        """As many as of an index that is not exact, see `FaissIndex.n_fetched`."""
        return self._behind.candidates.fetched(n)

    @property
    def can_select(self) -> bool:
        """Whether the index on the processor can, which answers searches among some items."""
        return self._behind.can_select

    @property
    def device(self) -> str:
        """Where searches are made."""
        return self._held.where if self.failure is None else self._behind.device

    @property
    def failure(self) -> str | None:
        """Why the processor answers in the place of the GPU; None while it does not."""
        return self._held.failure

    def search(self, queries: FloatArray, n: int, among: Mask | None = None) -> Ints:
        """Positions of the n nearest items; see `FaissIndex.search`."""
        if among is not None or n > self._most or self.failure is not None or not len(queries):
            return self._behind.search(queries, n, among)
        asked = _Asked(np.ascontiguousarray(queries, dtype=np.float32), n)
        self._held.asked.put(asked)
        return asked.found.result()


VectorIndex: TypeAlias = FaissIndex | GpuIndex


class IndexDevices:
    """Where the vector indexes of a process are searched.

    Args:
        device: `cpu`; `cuda`, the first GPU; `cuda:N`; `all` GPUs, each with the whole index where it fits,
            else with a part; or `auto`: the GPU with most memory free, or the processor where none has room.

    Raises:
        IndexDeviceError: A GPU is asked for that Faiss cannot use.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        # What is free is known once the index before is there.
        self._one_at_a_time = threading.Lock()
        self._noting = threading.Lock()
        self._moved: weakref.WeakSet[GpuIndex] = weakref.WeakSet()
        self._refused: weakref.WeakKeyDictionary[FaissIndex, str] = weakref.WeakKeyDictionary()
        if device != "auto":
            # What is asked for and not there is told at once.
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
        """Why indexes are on the processor that were to be on a GPU."""
        with self._noting:
            failures = [one.failure for one in self._moved if one.failure is not None]
            return sorted({*failures, *self._refused.values()})

    def placed(self, index: FaissIndex, embeddings: FloatArray) -> VectorIndex:
        """An index where it is to be searched.

        Args:
            embeddings: (n, d) float32, what it holds.
        """
        if not self._numbers or not len(embeddings):
            return index
        try:
            with self._one_at_a_time:
                moved = self._copied(index, embeddings)
        except IndexDeviceError as error:
            if self._device != "auto":
                raise
            logger.warning("an index stays on the processor: %s", error)
            with self._noting:
                self._refused[index] = str(error)
            return index
        with self._noting:
            self._moved.add(moved)
        return moved

    def _copied(self, index: FaissIndex, embeddings: FloatArray) -> GpuIndex:
        if self._device != "all" and becomes_graph(index.spec, len(embeddings)):
            try:
                return self._with_graph(index, embeddings)
            except IndexDeviceError as error:
                logger.warning("no graph is made on a GPU, where all items are compared instead: %s", error)
        numbers, is_split = self._room(gpu_bytes(index.spec, *embeddings.shape))
        where = ", ".join(f"cuda:{number}" for number in numbers)
        resources = [faiss_resource() for _ in numbers]
        try:
            if _LISTS.fullmatch(index.spec):
                moved = _with_lists(index, resources, numbers, is_split=is_split)
            else:
                moved = _flat(embeddings, resources, numbers, is_split=is_split)
        except (MemoryError, RuntimeError) as error:
            raise IndexDeviceError(f"{where} does not take the index: {in_one_line(error)}") from error
        return GpuIndex(index, moved, where)

    def _with_graph(self, index: FaissIndex, embeddings: FloatArray) -> GpuIndex:
        (number,), _ = self._room(graph_bytes(*embeddings.shape))
        try:
            moved = CagraGraph(faiss_resource(), embeddings, number)
        except (MemoryError, RuntimeError) as error:
            raise IndexDeviceError(f"cuda:{number} does not make it: {in_one_line(error)}") from error
        return GpuIndex(index, moved, f"cuda:{number}", most=MOST_FROM_GRAPH)

    def _room(self, n_bytes: int) -> tuple[Sequence[int], bool]:
        """The GPUs for an index of a size, and whether each gets a part of it."""
        free = {gpu.number: gpu.free - WORK_BYTES for gpu in gpus()}
        # Without the driver's tool nobody knows; Faiss will tell.
        known = {number: free[number] for number in self._numbers if number in free}
        if len(known) < len(self._numbers):
            return (self._numbers if self._device == "all" else self._numbers[:1]), False
        if self._device == "all":
            is_split = n_bytes > min(known.values())
            if is_split and n_bytes / len(known) > min(known.values()):
                raise _too_large(n_bytes, min(known.values()) * len(known), "all GPUs together have")
            return self._numbers, is_split
        number = max(known, key=lambda one: known[one])
        if n_bytes > known[number]:
            raise _too_large(n_bytes, known[number], f"cuda:{number} has")
        return (number,), False


def faiss_gpus(device: str) -> Sequence[int]:
    """Numbers of the GPUs that a device stands for, to be used by Faiss."""
    if device == "cpu":
        return ()
    faiss = import_faiss()
    n_gpus = int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0
    if device in ("auto", "all") and (n_gpus or device == "auto"):
        return range(n_gpus)
    number = int(device.partition(":")[2] or 0) if device != "all" else 0
    if number < n_gpus:
        return (number,)
    there = f"is built without GPUs: {install_command('gpu')}"
    if hasattr(faiss, "StandardGpuResources"):
        there = f"finds {n_gpus} GPUs"
    raise IndexDeviceError(f"device '{device}' was asked for, and this Faiss {there}")


def roomiest_gpu(numbers: Sequence[int]) -> tuple[int, int | None]:
    """The GPU with most memory free, and how many bytes that are; None where the driver's tool does not tell.

    Args:
        numbers: The GPUs to choose from.

    Raises:
        IndexDeviceError: The driver does not answer.
    """
    free = {gpu.number: gpu.free for gpu in gpus() if gpu.number in numbers}
    number = max(free, key=lambda one: free[one], default=numbers[0])
    return number, free.get(number)


def faiss_resource() -> Any:
    """What Faiss works with on a GPU; not for two threads."""
    resource = import_faiss().StandardGpuResources()
    # Otherwise 1.5 GB.
    resource.setTempMemory(WORK_BYTES)
    return resource


def gpu_bytes(spec: str, n_items: int, dim: int) -> int:
    """Memory that an index takes on a GPU, in bytes."""
    found = _LISTS.fullmatch(spec)
    if found is None:
        return 2 * dim * n_items
    code = float(found["bytes"]) if found["bytes"] else _BYTES_A_VALUE[found["plain"]] * dim
    return int((code + _ID_BYTES) * n_items) + 4 * dim * int(found["lists"])


def _with_lists(index: FaissIndex, resources: list[Any], numbers: Sequence[int], *, is_split: bool) -> Any:
    faiss = import_faiss()
    if len(numbers) == 1:
        options = faiss.GpuClonerOptions()
        options.useFloat16 = True
        moved = faiss.index_cpu_to_gpu(resources[0], numbers[0], index.as_faiss, options)
    else:
        options = faiss.GpuMultipleClonerOptions()
        options.useFloat16, options.shard = True, is_split
        moved = faiss.index_cpu_to_gpu_multiple_py(resources, index.as_faiss, options, list(numbers))
    # Copies and parts take no parameters with a search.
    faiss.GpuParameterSpace().set_index_parameter(moved, "nprobe", index.n_probed)
    return moved


def _flat(embeddings: FloatArray, resources: list[Any], numbers: Sequence[int], *, is_split: bool) -> Any:
    faiss, dim = import_faiss(), embeddings.shape[1]
    edges = np.linspace(0, len(embeddings), len(numbers) + 1).astype(int).tolist()
    parts = []
    for number, resource, begin, end in zip(numbers, resources, edges, edges[1:], strict=False):
        config = faiss.GpuIndexFlatConfig()
        config.device, config.useFloat16 = number, True
        part = faiss.GpuIndexFlatIP(resource, dim, config)
        rows = embeddings[begin:end] if is_split else embeddings
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part.add(np.ascontiguousarray(rows[start : start + _ROWS_AT_ONCE], dtype=np.float32))
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    together = faiss.IndexShards(dim, True, True) if is_split else faiss.IndexReplicas(dim, True)
    for part in parts:
        together.add_shard(part) if is_split else together.addIndex(part)
    return together


def _answer(held: _Held) -> None:
    """Answer searches until the index is let go of."""
    is_over = False
    while not is_over and (first := held.asked.get()) is not None:
        batch = [first]
        while len(batch) < _MOST_TOGETHER and not held.asked.empty():
            one = held.asked.get()
            if one is None:
                is_over = True
                break
            batch.append(one)
        _search(held, batch)


def _search(held: _Held, batch: list[_Asked]) -> None:
    try:
        if held.failure is not None:
            raise RuntimeError(held.failure)
        queries = np.concatenate([one.queries for one in batch])
        _, found = held.index.search(queries, max(one.n for one in batch))
    except (MemoryError, RuntimeError) as error:
        if held.failure is None:
            held.failure = f"{held.where} failed: {in_one_line(error)}"
            logger.error("%s; searches go on on the processor", held.failure)
        held.index = None
        for one in batch:
            one.found.set_exception(IndexDeviceError(held.failure))
        return
    ends = np.cumsum([len(one.queries) for one in batch])
    for one, rows in zip(batch, np.split(found, ends[:-1]), strict=True):
        one.found.set_result(rows[:, : one.n])


def _too_large(needed: int, free: int, who: str) -> IndexDeviceError:
    return IndexDeviceError(
        f"the index needs {needed / 2**30:.1f} GiB on a GPU, and {who} {max(0, free) / 2**30:.1f} GiB free"
    )


def in_one_line(error: Exception) -> str:
    """What Faiss says in several lines, or the name of an error that says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
