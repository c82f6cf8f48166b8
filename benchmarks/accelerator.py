"""What an accelerator does for Vicinal, in one go of some minutes, on a machine without a network.

    python -m benchmarks.accelerator                       # CUDA
    python -m benchmarks.accelerator --device cpu --small  # that it runs

    machine      GPUs, and the packages that there are
    limits       torch: memory bandwidth by copies, arithmetic by a product of matrices; what nothing exceeds
    tests        the tests marked `gpu`
    search       Faiss: exact search in float16, and the bandwidth that it reaches
    neighbors    Faiss: seconds until the neighbors of every item of a gallery are found
    pairs        Faiss: pairs of a query and an item a second, sent and fetched as a calibration does
    embedding    ONNX Runtime: images a second of the bundle that ships, without decoding
    gallery      ONNX Runtime: items a second that the refiner of that bundle refines, fetched and sent there
    refinement   torch: items a second that a refiner of two steps refines with eight neighbors
    loss         torch: a step of recall@k at a batch of 4,096 with its gradient

A part whose package is missing, or is built without the accelerator, is left out by name, as is one that is
not begun after eight minutes; one that fails says why, and the others go on. The last line is
one JSON object; `--output` writes it to a file too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.calibration.arrays import FloatArray

if TYPE_CHECKING:
    from vicinal.calibration.arrays import FloatArray

__all__: list[str] = []

_FAISS = "faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs"
_PACKAGES = ("numpy", "torch", "onnxruntime", "onnxruntime-gpu", *_FAISS, "pytest", "timm")
_TEST_SECONDS = 120.0
_LAST_BEGIN_SECONDS = 480.0
_DIM = 512


class MissingError(Exception):
    """What a part needs is not here."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes:
        seconds: Of each measurement, at least.
        items: Of a gallery that is searched.
        compared: Of one whose items are compared with each other.
        refined: Items that are refined at a time.
        batch: Of the loss.
        images: Largest batch of the network.
        side: Of the square matrices whose product is timed, and whose copies are.
    """

    seconds: float = 3.0
    items: int = 4_000_000
    compared: int = 200_000
    refined: int = 65_536
    batch: int = 4096
    images: int = 256
    side: int = 8192


SMALL = Sizes(seconds=0.05, items=5_000, compared=2_000, refined=256, batch=64, images=2, side=256)


def machine(device: str, sizes: Sizes) -> dict[str, Any]:
    """The GPUs and the packages."""
    del device, sizes
    from vicinal.indexer.graph.gpu import gpus

    there = [f"{one.name}, {one.total / 2**30:.0f} GiB, driver {one.driver}" for one in gpus()]
    return {"gpus": there, "python": sys.version.split()[0], "packages": dict(_versions())}


def limits(device: str, sizes: Sizes) -> dict[str, Any]:
    """Bytes a second that a copy reads and writes, and operations a second of a product."""
    torch = _torch(device)
    found: dict[str, Any] = {}
    for name, dtype in {
        "float32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
    }.items():
        left = torch.randn(sizes.side, sizes.side, device=device).to(dtype)
        spent = _seconds(lambda left=left: left @ left, device, sizes)
        found[f"{name}_tflops"] = round(2 * sizes.side**3 / spent / 1e12, 3)
    rows = torch.empty(sizes.side, sizes.side, 16, device=device)
    other = torch.empty_like(rows)
    spent = _seconds(lambda: other.copy_(rows), device, sizes)
    return found | {"copy_gb_per_second": round(2 * rows.numel() * 4 / spent / 1e9, 1)}


def tests(device: str, sizes: Sizes) -> dict[str, Any]:
    """The last line of pytest, and its exit status."""
    del sizes
    if device == "cpu":
        raise MissingError("they need a GPU")
    if _version("pytest") is None:
        raise MissingError("there is no pytest")
    root = Path(__file__).resolve().parents[1]
    # Others may need packages that a lent machine lacks.
    modules = [str(path) for path in root.glob("tests/**/test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *modules]
    run = partial(subprocess.run, cwd=root, capture_output=True, text=True, timeout=_TEST_SECONDS)
    done = run(command, check=False)
    return {"exit": done.returncode, "said": done.stdout.strip().splitlines()[-8:]}


def search(device: str, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of an exact search by batch, and the bytes a second that the index is read with."""
    from vicinal.indexer.graph.gpu import GpuIndex, IndexDevices
    from vicinal.indexer.graph.vector_index import FaissIndex, import_faiss

    if device != "cpu" and not hasattr(import_faiss(), "StandardGpuResources"):
        raise MissingError("this Faiss is built without GPUs")
    rows = _rows(sizes.items)
    # On a GPU, the index behind it is never asked.
    behind = FaissIndex.build(rows if device == "cpu" else rows[:1], "Flat")
    index = IndexDevices(device).placed(behind, rows)
    if device != "cpu" and not isinstance(index, GpuIndex):
        raise MissingError("no GPU took the index")
    found: dict[str, Any] = {}
    for n in (1, 32, 1024):
        queries = rows[:n]
        spent = _seconds(lambda queries=queries: index.search(queries, 100), "cpu", sizes)
        per_second = round(2 * rows.size / spent / 1e9, 1)
        found[str(n)] = {"milliseconds": round(1e3 * spent, 3), "gb_per_second": per_second}
    return found


def neighbors(device: str, sizes: Sizes) -> dict[str, Any]:
    """Seconds for all lists, and those until candidates are found, which are scored afterwards."""
    from vicinal.indexer.graph.gpu import gpu_candidates
    from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, SPARE_NEIGHBORS, build_neighbor_graph
    from vicinal.indexer.graph.vector_index import import_faiss

    if device != "cpu" and not hasattr(import_faiss(), "StandardGpuResources"):
        raise MissingError("this Faiss is built without GPUs")
    rows, found = _rows(sizes.compared), {"items": sizes.compared}
    if device != "cpu":
        begun = time.perf_counter()
        if gpu_candidates(rows, N_NEIGHBORS + 1 + SPARE_NEIGHBORS, device) is None:
            raise MissingError("these items are left to the processor")
        found["seconds_to_candidates"] = round(time.perf_counter() - begun, 3)
    begun = time.perf_counter()
    build_neighbor_graph(rows, device=device)
    return found | {"seconds_to_lists": round(time.perf_counter() - begun, 3)}


def pairs(device: str, sizes: Sizes) -> dict[str, Any]:
    """Pairs a second, and how far their similarities are from those of the processor."""
    from vicinal.indexer.graph.vector_index import import_faiss
    from vicinal.service.search.item_spaces import block_products, exact_products

    if device != "cpu" and not hasattr(import_faiss(), "StandardGpuResources"):
        raise MissingError("this Faiss is built without GPUs")
    multiply = block_products(device, sizes.compared**2)
    # A block of a calibration.
    rows = _rows(min(sizes.compared, 16_384))
    queries = rows[:256]
    spent = _seconds(lambda: multiply(queries, rows), "cpu", sizes)
    far = np.abs(multiply(queries, rows) - exact_products(queries, rows)).max()
    return {"millions_per_second": round(len(queries) * len(rows) / spent / 1e6, 1), "largest": float(far)}


def embedding(device: str, sizes: Sizes) -> dict[str, Any]:
    """Images a second by batch."""
    from vicinal.models.bundle import ModelBundle, default_bundle_path
    from vicinal.models.embedder import Embedder
    from vicinal.models.runtime import offers_cuda

    if device != "cpu" and not offers_cuda():
        raise MissingError("this ONNX Runtime is built without CUDA")
    bundle = ModelBundle.open(default_bundle_path())
    embedder = Embedder(bundle, device="cpu" if device == "cpu" else "cuda", batch_size=sizes.images)
    side = bundle.preprocessing.input_size
    found: dict[str, Any] = {"provider": embedder.provider}
    for n in (1, 32, sizes.images):
        tensors = list(np.random.default_rng(0).standard_normal((n, 3, side, side), dtype=np.float32))
        spent = _seconds(lambda tensors=tensors: embedder.infer(tensors), "cpu", sizes)
        found[str(n)] = round(n / spent, 1)
    return found


def gallery(device: str, sizes: Sizes) -> dict[str, Any]:
    """Items a second, and how far they are from those of the processor."""
    from vicinal.models.bundle import ModelBundle, default_bundle_path
    from vicinal.models.runtime import offers_cuda
    from vicinal.refine.context_refiner import ContextRefiner

    if device != "cpu" and not offers_cuda():
        raise MissingError("this ONNX Runtime is built without CUDA")
    refiner = ContextRefiner(ModelBundle.open(default_bundle_path()))
    rows = _rows(sizes.refined, refiner.architecture.dim)
    near = np.random.default_rng(1).integers(0, sizes.refined, (sizes.refined, refiner.n_neighbors))
    spent = _seconds(lambda: refiner.refine_gallery(rows, near, device=device), "cpu", sizes)
    some = slice(0, 1000)
    on_processor = refiner.refine_gallery(rows, near[some], rows=np.arange(sizes.refined)[some])
    difference = np.abs(refiner.refine_gallery(rows, near, device=device)[some] - on_processor).max()
    return {"items_per_second": round(sizes.refined / spent), "largest_difference": float(difference)}


def refinement(device: str, sizes: Sizes) -> dict[str, Any]:
    """Items a second, by the form of the refiner."""
    torch = _torch(device)
    from vicinal.training.refiner.config import RefinerConfig
    from vicinal.training.refiner.network import ContextRefinerNetwork

    found: dict[str, Any] = {}
    normalize = torch.nn.functional.normalize
    query = normalize(torch.randn(sizes.refined, _DIM, device=device), dim=-1)
    context = normalize(torch.randn(sizes.refined, 8, _DIM, device=device), dim=-1)
    mask = torch.ones(sizes.refined, 8, dtype=torch.bool, device=device)
    forms = {"attention": {}, "gated": {"init": "softmax_qe", "temperature": 0.1}}
    for form, how in forms.items():
        config = RefinerConfig.model_validate({"form": form, "n_neighbors": 8, **how})
        network = ContextRefinerNetwork(_DIM, config).to(device).eval()
        with torch.inference_mode():
            spent = _seconds(lambda network=network: network(query, context, mask), device, sizes)
        found[form] = {"n_steps": network.config.n_steps, "items_per_second": round(sizes.refined / spent)}
    return found


def loss(device: str, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of recall@k with its gradient, and the memory at its highest."""
    torch = _torch(device)
    from benchmarks.speed.loss_costs import embeddings_of, with_gradient
    from vicinal.training.losses.recall_at_k import RecallAtKLoss

    embeddings, labels = embeddings_of(sizes.batch, torch.device(device))
    of_batch = RecallAtKLoss().to(device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    spent = _seconds(lambda: with_gradient(of_batch, embeddings, labels), device, sizes)
    found = {"batch": sizes.batch, "milliseconds": round(1e3 * spent, 2)}
    if device != "cpu":
        found["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return found


PARTS: tuple[Callable[[str, Sizes], dict[str, Any]], ...] = (
    machine,
    limits,
    tests,
    search,
    neighbors,
    pairs,
    embedding,
    gallery,
    refinement,
    loss,
)


def measured(device: str, sizes: Sizes) -> dict[str, Any]:
    """What every part found, why it was left out, or how it failed."""
    found: dict[str, Any] = {"device": device}
    started = time.perf_counter()
    for part in PARTS:
        begun, name = time.perf_counter(), part.__name__
        try:
            if begun - started > _LAST_BEGIN_SECONDS:
                raise MissingError("the parts before took too long")
            found[name] = part(device, sizes)
        except (ImportError, MissingError) as error:
            found[name] = {"left_out": str(error)}
        except Exception as error:  # the machine is lent once: the other parts are worth having
            found[name] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
        found[name]["seconds"] = round(time.perf_counter() - begun, 1)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def _rows(n: int, dim: int = _DIM) -> FloatArray:
    from vicinal.models.similarity import normalize

    return normalize(np.random.default_rng(0).standard_normal((n, dim), dtype=np.float32))


def _seconds(run: Callable[[], Any], device: str, sizes: Sizes) -> float:
    """Seconds of one run, the shortest of several."""
    wait = _torch(device).cuda.synchronize if device != "cpu" else lambda: None
    run()
    wait()
    shortest, ends = np.inf, time.perf_counter() + sizes.seconds
    while time.perf_counter() < ends or shortest == np.inf:
        begun = time.perf_counter()
        run()
        wait()
        shortest = min(shortest, time.perf_counter() - begun)
    return float(shortest)


def _torch(device: str) -> Any:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        raise MissingError("torch finds no GPU")
    return torch


def _versions() -> list[tuple[str, str]]:
    return [(name, found) for name in _PACKAGES if (found := _version(name)) is not None]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="that it runs, not how fast")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = json.dumps(measured(arguments.device, SMALL if arguments.small else Sizes()))
    if arguments.output is not None:
        arguments.output.write_text(found + "\n", encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
