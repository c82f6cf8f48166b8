"""GPUs that are none: of Faiss, over its indexes on the processor and as float16 as theirs, and of a network.

What they cannot show is whether a real GPU does as it is told; what is chosen, sent, counted and recovered
from, they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph import gpu
from vicinal.indexer.graph.gpu import Gpu

__all__ = ["SmallGpu", "StandInGpus", "stand_in_gpus"]


@dataclass
class StandInGpus:
    """What was asked of them.

    Attributes:
        free: Free bytes by GPU; the driver's tool is missing where it is empty.
        made: Kinds of indexes that were put on them.
        batches: Numbers of queries of every search, in order.
        fails: Called before every search; may raise what Faiss raises.
        compared: GPU, queries and items at once of every comparison, in order.
        holds: Bytes that a comparison may send, where that is less than is free.
    """

    free: list[int]
    made: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    fails: Callable[[], None] = lambda: None
    compared: list[tuple[int, int, int]] = field(default_factory=list)
    holds: int | None = None

    def knn_gpu(
        self, resources: Any, queries: FloatArray, items: FloatArray, k: int, **given: Any
    ) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """As Faiss does it: items in parts, of which the last may be smaller."""
        assert resources.n_bytes > 0
        assert (queries.dtype, items.dtype, given["metric"]) == ("f4", "f4", faiss.METRIC_INNER_PRODUCT)
        self.fails()
        most = given["vectorsMemoryLimit"] // items[0].nbytes
        part = min(most, len(items))
        self.compared.append((given["device"], len(queries), part))
        holds = self.free[given["device"]] if self.holds is None else self.holds
        if queries.nbytes + 12 * k * len(queries) + part * items[0].nbytes > holds:
            raise RuntimeError("Error in StandardGpuResources: alloc fail\ncudaMalloc error out of memory")
        merged = faiss.ResultHeap(len(queries), k, keep_max=True)
        for start in range(0, len(items), part):
            some = items[start : start + part]
            assert len(some) >= k
            scores, ids = faiss.knn(queries, some, k, metric=faiss.METRIC_INNER_PRODUCT)
            merged.add_result(scores, ids + start)
        merged.finalize()
        return merged.D, merged.I

    def pairwise_distance_gpu(
        self, resources: Any, queries: FloatArray, items: FloatArray, **given: Any
    ) -> FloatArray:
        """Products in float32, as Faiss makes them."""
        assert resources.n_bytes > 0
        assert (queries.dtype, items.dtype, given["metric"]) == ("f4", "f4", faiss.METRIC_INNER_PRODUCT)
        assert queries.flags.c_contiguous
        assert items.flags.c_contiguous
        self.fails()
        self.compared.append((given["device"], len(queries), len(items)))
        return np.asarray(queries @ items.T, dtype=np.float32)


class _OnGpu:
    """An index on them; parts and copies are one index here."""

    def __init__(self, gpus: StandInGpus, index: Any) -> None:
        self.gpus, self.index = gpus, index

    def add(self, rows: FloatArray) -> None:
        # Parts take items once.
        assert self.index.ntotal == 0
        self.index.add(rows)

    def search(self, queries: FloatArray, n: int) -> Any:
        assert (queries.dtype, queries.flags.c_contiguous) == ("f4", True)
        self.gpus.fails()
        self.gpus.batches.append(len(queries))
        return self.index.search(queries, n)


@contextmanager
def stand_in_gpus(free: list[int], n: int | None = None) -> Iterator[StandInGpus]:
    """Give Faiss GPUs while a context lasts.

    Args:
        free: Free bytes of each.
        n: Their number, where the driver's tool does not tell of them.
    """
    gpus = StandInGpus(free)

    def moved(resources: Any, number: int, index: Any, options: Any) -> _OnGpu:
        assert resources.n_bytes > 0
        assert number < n_gpus
        assert options.useFloat16
        is_flat = isinstance(index, faiss.IndexFlatIP)
        way = " by cuVS" if options.use_cuvs else ""
        gpus.made.append(f"{'Flat in float16' if is_flat else 'lists'} on {number}{way}")
        if not is_flat:
            return _OnGpu(gpus, index)
        fp16 = faiss.ScalarQuantizer.QT_fp16
        return _OnGpu(gpus, faiss.IndexScalarQuantizer(index.d, fp16, faiss.METRIC_INNER_PRODUCT))

    class Parameters:
        def set_index_parameter(self, on_gpu: _OnGpu, name: str, value: int) -> None:
            faiss.ParameterSpace().set_index_parameter(on_gpu.index, name, value)

    n_gpus = len(free) if n is None else n
    functions = {
        "get_num_gpus": lambda: n_gpus,
        "StandardGpuResources": _Resources,
        "GpuClonerOptions": SimpleNamespace,
        "GpuParameterSpace": Parameters,
        "knn_gpu": gpus.knn_gpu,
        "pairwise_distance_gpu": gpus.pairwise_distance_gpu,
        "index_cpu_to_gpu": moved,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, function in functions.items():
            patch.setattr(faiss, name, function, raising=False)
        there = [Gpu(i, "", "stand-in", n, n, "") for i, n in enumerate(free)]
        patch.setattr(gpu, "gpus", lambda: there)
        yield gpus


class _Resources:
    n_bytes = 0

    def setTempMemory(self, n_bytes: int) -> None:  # noqa: N802
        self.n_bytes = n_bytes


class SmallGpu:
    """Session of a network on a GPU whose memory holds few images; of a refiner, few items.

    Attributes:
        session: The one on the processor that does the work; None for a GPU that fails.
        holds: Images, or items to refine, that it holds.
        sizes: How many were in every call, in order.
    """

    def __init__(self, session: Any, holds: int) -> None:
        self.session, self.holds = session, holds
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs
        self.sizes: list[int] = []

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"CUDAExecutionProvider": {"device_id": "0"}, "CPUExecutionProvider": {}}

    def run(self, names: list[str], inputs: dict[str, Any]) -> list[FloatArray]:
        self._take(len(next(iter(inputs.values()))))
        return self.session.run(names, inputs)

    def io_binding(self) -> _Binding:
        return _Binding()

    def run_with_iobinding(self, binding: _Binding) -> None:
        """What is bound goes to the processor's session, bound too."""
        ((name, tensors),) = binding.inputs.items()
        self._take(len(tensors))
        there = self.session.io_binding()
        there.bind_cpu_input(name, tensors)
        there.bind_output(binding.output)
        self.session.run_with_iobinding(there)
        binding.copy_outputs_to_cpu = there.copy_outputs_to_cpu

    def _take(self, n: int) -> None:
        self.sizes.append(n)
        if n > self.holds:
            raise RuntimeError("Failed to allocate memory for\nrequested buffer of size 1048576")
        if self.session is None:
            raise RuntimeError("CUDA error 719: unspecified launch failure")


class _Binding:
    output = ""
    copy_outputs_to_cpu: Callable[[], list[FloatArray]]

    def __init__(self) -> None:
        self.inputs: dict[str, FloatArray] = {}

    def bind_cpu_input(self, name: str, batch: FloatArray) -> None:
        # Memory that is not laid out row by row is bound as it lies.
        assert batch.flags.c_contiguous
        assert batch.dtype == np.float32
        self.inputs[name] = batch

    def bind_output(self, name: str) -> None:
        self.output = name
