"""What refinement costs: a whole gallery against the plain algorithm, one query against embedding its image.

The plain algorithm of the paper projects the neighbors of every item anew, in every step; both run on the
same cores and give the same result. Queries are refined, searched and re-ranked by the service's scorer in a
gallery of 20,000 synthetic items; beside them a ResNet-50 embeds 224 px images in ONNX Runtime, at batch 1
and 32. Repetitions of what is compared take turns, and what is compared is the processor time of one core.
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

from benchmarks.common.cost_meters import interleaved
from benchmarks.common.large_gallery import clustered_vectors, write_bundle
from benchmarks.common.record import save_result
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.bundle import ModelBundle, sha256_of
from vicinal.models.runtime import open_session
from vicinal.models.similarity import FloatArray
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.training.config import RefinerConfig
from vicinal.refine.training.export import export_refiner
from vicinal.refine.training.network import ContextRefinerNetwork
from vicinal.service.scoring.opened_refiner import open_refiner
from vicinal.service.scoring.pipeline import Pipeline, Refine
from vicinal.service.scoring.scorer import Scorer

__all__: list[str] = []

_DIM = 512
_CPU = torch.device("cpu")
_EMBEDDER = "resnet50"
_GATED = {"form": "gated", "init": "softmax_qe", "temperature": 0.2, "level": True, "n_steps": 1}
_REFINERS: dict[str, dict[str, Any]] = {
    "attention_mlp, 8 steps": {"form": "attention_mlp", "n_steps": 8},
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


def plain_gallery(refiner: ContextRefiner, embeddings: FloatArray, neighbor_ids: Any) -> FloatArray:
    """Algorithm 2 as it is written: keys and values of the neighbors of every item, chunk by chunk."""
    architecture, k = refiner.architecture, refiner.n_neighbors
    heads, width = architecture.n_heads, architecture.dim // architecture.n_heads
    refined = np.empty_like(embeddings)
    for start in range(0, len(embeddings), 256):
        rows = embeddings[start : start + 256]
        neighbors = embeddings[neighbor_ids[start : start + 256, :k]].reshape(-1, architecture.dim)
        n = len(rows)
        for weights in refiner.weights:
            # The stored matrices as the paper has them: d x d, a head's columns beside each other.
            key = weights["key"].transpose(2, 0, 1).reshape(architecture.dim, architecture.dim)
            value = weights["value"].transpose(1, 0, 2).reshape(architecture.dim, architecture.dim)
            queries = (rows @ weights["query"] + weights["query_bias"]).reshape(n, heads, 1, width)
            keys = (neighbors @ key).reshape(n, k, heads, width).transpose(0, 2, 3, 1)
            values = (neighbors @ value).reshape(n, k, heads, width).transpose(0, 2, 1, 3)
            logits = (queries @ keys) / np.float32(width**0.5)
            powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
            gathered = (powers / powers.sum(axis=-1, keepdims=True)) @ values
            rows = rows + gathered.reshape(n, -1) @ weights["output"] + weights["output_bias"]
            hidden = np.maximum(rows @ weights["hidden"] + weights["hidden_bias"], 0.0)
            rows = rows + hidden @ weights["mlp"] + weights["mlp_bias"]
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        refined[start : start + 256] = rows
    return refined


def gallery_costs(refiners: dict[str, ContextRefiner], n_items: int, repetitions: int) -> dict[str, Any]:
    """Items a second of both ways, and how far their results are apart."""
    embeddings = _synthetic(n_items)
    graph = build_neighbor_graph(embeddings)
    paper = refiners["attention_mlp, 8 steps"]
    ways: dict[str, Callable[[], FloatArray]] = {
        "plain algorithm": lambda: plain_gallery(paper, embeddings, graph.ids),
        **{
            name: functools.partial(one.refine_gallery, embeddings, graph.ids)
            for name, one in refiners.items()
        },
    }
    results = {name: way() for name, way in ways.items()}
    apart = float(np.abs(results["plain algorithm"] - results["attention_mlp, 8 steps"]).max())
    times = interleaved(ways, _CPU, repetitions=repetitions)
    return {
        "items": n_items,
        "largest_difference": apart,
        "throughput_over_plain": times["plain algorithm"].over(times["attention_mlp, 8 steps"]),
        "items_per_second": {
            name: round(n_items / float(np.median(one.busy))) for name, one in times.items()
        },
        "times": {name: one.row() for name, one in times.items()},
    }


def query_costs(
    folder: Path, refiners: dict[str, ContextRefiner], n_items: int, repetitions: int
) -> dict[str, Any]:
    """Milliseconds of refining, searching and re-ranking one query, and of embedding its image."""
    everyone = _synthetic(n_items + repetitions)
    embeddings, queries = everyone[:n_items], everyone[n_items:]
    graph = build_neighbor_graph(embeddings)
    scorers = {}
    for name, refiner in refiners.items():
        snapshot = _snapshot(folder / f"gallery-{len(scorers)}", refiner.bundle, embeddings, graph)
        write_refined(snapshot, refiner, refiner.n_steps)
        refine = Refine(sides="both", steps=refiner.n_steps, refiner=refiner.fingerprint)
        pipeline = Pipeline(refine=refine)
        scorers[name] = Scorer(snapshot, pipeline, open_refiner(pipeline, refiner, "g", snapshot))
    scorers["not refined"] = Scorer(snapshot, Pipeline())
    session = _embedder(folder)
    images = {n: np.random.default_rng(0).normal(size=(n, 3, 224, 224)).astype(np.float32) for n in (1, 32)}
    turn = itertools.cycle(queries[:, None])
    ways: dict[str, Callable[[], Any]] = {
        name: functools.partial(_search, scorer, turn) for name, scorer in scorers.items()
    }
    ways["embed, batch 1"] = functools.partial(session.run, None, {"images": images[1]})
    many = {"embed, batch 32": functools.partial(session.run, None, {"images": images[32]})}
    times = interleaved(ways, _CPU, repetitions=repetitions)
    times |= interleaved(many, _CPU, repetitions=max(3, repetitions // 20))
    image = {
        "batch 1": float(np.median(times["embed, batch 1"].busy)),
        "batch 32": float(np.median(times["embed, batch 32"].busy)) / 32,
    }
    shares = {
        name: {at: round(float(np.median(times[name].busy)) / one, 4) for at, one in image.items()}
        for name in scorers
    }
    return {
        "items": len(embeddings),
        "share_of_embedding": shares,
        "milliseconds_of_an_image": {name: round(1e3 * one, 2) for name, one in image.items()},
        "times": {name: one.row() for name, one in times.items()},
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
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        refiners = {name: refiner_of(Path(folder), name) for name in _REFINERS}
        gallery = gallery_costs(refiners, arguments.items, 5)
        print(gallery, flush=True)
        queries = query_costs(Path(folder), refiners, arguments.searched, arguments.repetitions)
        print(queries)
    ratios = {"plain algorithm over refinement": gallery["throughput_over_plain"]["ratio"]}
    for name, shares in queries["share_of_embedding"].items():
        ratios[f"image at batch 32 over a query, {name}"] = round(1.0 / shares["batch 32"], 3)
    result = {"dim": _DIM, "threads": 1, "gallery": gallery, "queries": queries, "ratios": ratios}
    if not arguments.no_result:
        print(save_result("refiner_costs", result))


if __name__ == "__main__":
    main()
