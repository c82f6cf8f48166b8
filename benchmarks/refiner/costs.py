"""What refinement costs: a whole gallery against the plain algorithm, one query against embedding its image.

The plain algorithm of the paper projects the neighbors of every item anew, in every step. It is written in
torch's own modules and in numpy; all run on the same cores and give the same result, on one core and on two.
Queries are refined, searched and re-ranked by the service's scorer in a gallery of 20,000 synthetic items,
alone and 32 together; beside them a ResNet-50 embeds 224 px images in ONNX Runtime, one and 32.

Repetitions of what is compared take turns. What is compared is the processor time of one core, or on two
cores the wall time, which wants a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import timm
import torch
from threadpoolctl import threadpool_limits

from benchmarks.common.cost_meters import interleaved
from benchmarks.common.large_gallery import clustered_vectors, write_bundle
from benchmarks.common.record import save_result
from benchmarks.refiner.plain import PlainTorch, plain_gallery
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.bundle import ModelBundle, sha256_of
from vicinal.models.runtime import open_session
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import Scorer
from vicinal.training.refiner.config import RefinerConfig
from vicinal.training.refiner.export import export_refiner
from vicinal.training.refiner.network import ContextRefinerNetwork

__all__: list[str] = []

_DIM = 512
_CPU = torch.device("cpu")
_EMBEDDER = "resnet50"
_GATED = {"form": "gated", "init": "softmax_qe", "temperature": 0.2, "level": True, "n_steps": 1}
_BATCHES = (1, 32)
_EMBED = "embed"
_PAPER = "attention_mlp, 8 steps"
_PLAIN = ("plain torch", "plain numpy")
_REFINERS: dict[str, dict[str, Any]] = {
    _PAPER: {"form": "attention_mlp", "n_steps": 8},
    "attention_mlp, 2 steps": {"form": "attention_mlp", "n_steps": 2},
    "gated with level, 1 step": _GATED,
    "gated with level, 4 steps": {**_GATED, "n_steps": 4},
}


def refiner_of(folder: Path, name: str) -> ContextRefiner:
    """A refiner with random weights: time does not depend on them."""
    bundle = write_bundle(folder / name.replace(" ", "-"), _DIM)
    torch.manual_seed(0)
    network = ContextRefinerNetwork(_DIM, RefinerConfig.model_validate(_REFINERS[name]))
    for parameter in network.parameters():
        parameter.data += 0.01 * torch.randn_like(parameter)
    return ContextRefiner(export_refiner(network, bundle, {"sides": "both", "rerank": "off"}))


def gallery_costs(folder: Path, n_items: int, repetitions: int, *, threads: int = 1) -> dict[str, Any]:
    """Items a second of all ways on so many cores, and how far their results are apart."""
    embeddings = _synthetic(n_items)
    graph = build_neighbor_graph(embeddings)
    refiners = {name: refiner_of(folder, name) for name in _REFINERS}
    paper = refiners[_PAPER]
    ways: dict[str, Callable[[], FloatArray]] = {
        "plain torch": functools.partial(PlainTorch(paper).refine_gallery, embeddings, graph.ids),
        "plain numpy": functools.partial(plain_gallery, paper, embeddings, graph.ids),
        **{
            name: functools.partial(one.refine_gallery, embeddings, graph.ids)
            for name, one in refiners.items()
        },
    }
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        results = {name: way() for name, way in ways.items()}
        times = interleaved(ways, _CPU, repetitions=repetitions)
    torch.set_num_threads(1)
    spent = {name: one.busy if threads == 1 else one.wall for name, one in times.items()}
    return {
        "items": n_items,
        "threads": threads,
        "largest_difference": {name: float(np.abs(results[name] - results[_PAPER]).max()) for name in _PLAIN},
        "throughput_over_plain": {name: times[name].over(times[_PAPER]) for name in _PLAIN},
        "items_per_second": {name: round(n_items / float(np.median(one))) for name, one in spent.items()},
        "times": {name: one.row() for name, one in times.items()},
    }


def query_costs(folder: Path, n_items: int, repetitions: int) -> dict[str, Any]:
    """Milliseconds of refining, searching and re-ranking a query, and of embedding its image."""
    everyone = _synthetic(n_items + max(repetitions, 5 * max(_BATCHES)))
    embeddings, queries = everyone[:n_items], everyone[n_items:]
    graph = build_neighbor_graph(embeddings)
    scorers = {}
    for name in _REFINERS:
        refiner = refiner_of(folder / "queries", name)
        snapshot = _snapshot(folder / f"gallery-{len(scorers)}", refiner.bundle, embeddings, graph)
        write_refined(snapshot, refiner, refiner.n_steps)
        refine = Refine(sides="both", steps=refiner.n_steps, refiner=refiner.fingerprint)
        pipeline = Pipeline(refine=refine, rerank=Rerank(method="contextual"))
        scorers[name] = Scorer(snapshot, pipeline, open_refiner(pipeline, refiner, "g", snapshot))
    scorers["not refined"] = Scorer(snapshot, Pipeline(rerank=Rerank(method="contextual")))
    session = _embedder(folder)
    images = {n: np.random.default_rng(0).normal(size=(n, 3, 224, 224)).astype(np.float32) for n in _BATCHES}
    times = {}
    for n in _BATCHES:
        turn = itertools.cycle(np.split(queries[: len(queries) // n * n], len(queries) // n))
        ways: dict[str, Callable[[], Any]] = {
            name: functools.partial(_search, scorer, turn) for name, scorer in scorers.items()
        }
        ways[_EMBED] = functools.partial(session.run, None, {"images": images[n]})
        times[n] = interleaved(ways, _CPU, repetitions=max(5, repetitions // n))
    milliseconds = {
        n: {name: 1e3 * float(np.median(one.busy)) / n for name, one in of_batch.items()}
        for n, of_batch in times.items()
    }
    return {
        "items": len(embeddings),
        "share_of_embedding": {
            name: {f"batch {n}": round(milliseconds[n][name] / milliseconds[n][_EMBED], 4) for n in _BATCHES}
            for name in scorers
        },
        "milliseconds_each": {
            f"batch {n}": {name: round(one, 3) for name, one in milliseconds[n].items()} for n in _BATCHES
        },
        "times": {
            f"batch {n}": {name: one.row() for name, one in of_batch.items()} for n, of_batch in times.items()
        },
    }


def _synthetic(n: int) -> FloatArray:
    """(n, d) unit vectors in clusters."""
    rng = np.random.default_rng(0)
    centers, basis = rng.normal(size=(500, 32)), rng.normal(size=(32, _DIM))
    vectors: FloatArray = clustered_vectors(rng, n, _DIM, centers, basis).astype(np.float32)
    return vectors


def _search(scorer: Scorer, queries: Iterator[FloatArray]) -> None:
    scorer.score(next(queries), 10)


def _snapshot(path: Path, bundle: ModelBundle, embeddings: FloatArray, graph: Any) -> Snapshot:
    n = len(embeddings)
    items = pa.table(
        {
            "id": [str(i) for i in range(n)],
            "label": [str(i % 500) for i in range(n)],
            "uri": [""] * n,
            "metadata": ["{}"] * n,
        }
    )
    fields = {
        "version": 1,
        "revision": 1,
        "bundle": bundle.fingerprint,
        "bundle_name": bundle.name,
        "next_number": n,
    }
    rows = SnapshotRows(items, np.arange(n, dtype=np.int64), embeddings, graph)
    return write_snapshot(path, rows, index="auto", fields=fields)


def _embedder(folder: Path) -> Any:
    network = timm.create_model(_EMBEDDER, pretrained=False, num_classes=_DIM).eval()
    path = folder / "embedder.onnx"
    batch = torch.export.Dim("batch", min=1)
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 224, 224),),
        path,
        input_names=["images"],
        dynamic_shapes=({0: batch},),
        dynamo=True,
        verbose=False,
    )
    return open_session(path, sha256_of(path), device="cpu", threads=1)


def main() -> None:
    """Measure costs of the gallery and of queries, and save both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--searched", type=int, default=20_000, help="items that queries are searched among")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument(
        "--two-cores", action="store_true", help="refine on two cores too; nothing else may run"
    )
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = {"dim": _DIM}
        names = ("gallery", "gallery_on_two_cores")[: 1 + arguments.two_cores]
        for threads, name in enumerate(names, start=1):
            result[name] = gallery_costs(Path(folder) / name, arguments.items, 5, threads=threads)
            print(result[name], flush=True)
        with threadpool_limits(1):
            result["queries"] = query_costs(Path(folder), arguments.searched, arguments.repetitions)
        print(result["queries"])
    ratios = {
        f"refinement over {name}": one["ratio"]
        for name, one in result["gallery"]["throughput_over_plain"].items()
    }
    largest = f"batch {max(_BATCHES)}"
    for name, shares in result["queries"]["share_of_embedding"].items():
        ratios[f"image at {largest} over a query, {name}"] = round(1.0 / shares[largest], 3)
    result["ratios"] = ratios
    if not arguments.no_result:
        print(save_result("refiner_costs", result))


if __name__ == "__main__":
    main()
