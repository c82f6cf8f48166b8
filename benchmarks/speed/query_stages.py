"""Time of a query by stage, over real HTTP, in a gallery of 100,000 synthetic items x 512.

Searches come one after the other as ready embeddings, so that the network's time stays out. The stages
are those that the answer names; `json` is reading the request and writing the answer, done again here on the
same bodies, because a server cannot say in its answer how long writing it takes. `request` is the whole of it
as the client sees it, with HTTP and the client's own JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import onnx
import pyarrow as pa
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from pydantic import TypeAdapter

from benchmarks.common.record import percentiles, save_result
from benchmarks.common.server_process import server_process
from benchmarks.speed.index_recall import clustered_vectors
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.service.http.bodies.search import SearchRequest
from vicinal.service.matcher.answers import Answer
from vicinal.service.settings import Settings

N_LABELS = 5000


def write_bundle(path: Path, dim: int) -> ModelBundle:
    """A bundle whose network is never run here: it only has to have the right width."""
    path.mkdir(parents=True)
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["embeddings"]),
        ],
        "width",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", dim])],
        [numpy_helper.from_array(np.ones((3, dim), np.float32), "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path / BACKBONE_FILE)
    return ModelBundle.write(
        path,
        {"name": "width", "backbone": "width", "dim": dim, "preprocessing": {"input_size": 32}},
    )


def write_gallery(gallery: Gallery, embeddings: np.ndarray, bundle: ModelBundle) -> dict[str, float]:
    n, dim = embeddings.shape
    stream = io.BytesIO()
    Image.new("RGB", (64, 64), "gray").save(stream, "JPEG")
    rows = pa.table(
        {
            "id": [f"folder/item-{i:07d}.jpg" for i in range(n)],
            "label": [f"label-{i % N_LABELS:04d}" for i in range(n)],
            "uri": [f"/photos/folder/item-{i:07d}.jpg" for i in range(n)],
            "metadata": ['{"shelf": "a", "price": 12.5}'] * n,
            "thumbnail": pa.array([stream.getvalue()] * n, pa.binary()),
            "content_sha256": pa.array([i.to_bytes(32, "big") for i in range(n)], pa.binary(32)),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), dim),
        }
    )
    seconds = {}
    with gallery.writing():
        gallery.start(rows, bundle=bundle.fingerprint, bundle_name=bundle.name)
        started = time.perf_counter()
        graph = build_neighbor_graph(embeddings)
        seconds["neighbors"] = round(time.perf_counter() - started, 1)
        started = time.perf_counter()
        gallery.publish(graph)
        seconds["publish"] = round(time.perf_counter() - started, 1)
    return seconds


_ANSWERS = TypeAdapter(Answer)


def json_milliseconds(request: str, answer: dict) -> float:
    started = time.perf_counter()
    SearchRequest.model_validate(json.loads(request))
    _ANSWERS.dump_json(_ANSWERS.validate_python({**answer, "top_score": None}))
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=300)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    centers, basis = rng.normal(size=(5000, 64)), rng.normal(size=(64, arguments.dim))
    items = clustered_vectors(rng, arguments.items, arguments.dim, centers, basis)
    queries = clustered_vectors(rng, arguments.queries + 20, arguments.dim, centers, basis)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), bundle=Path(folder) / "bundle")
        bundle = write_bundle(settings.bundle, arguments.dim)
        seconds = write_gallery(Gallery(settings.galleries_path / "large"), items, bundle)
        stages: dict[str, list[float]] = {}
        with (
            server_process(settings.data_dir, settings.bundle) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            index = client.get("/v1/galleries/large").raise_for_status().json()["index"]
            for turn, query in enumerate(queries):
                body = {"embedding": query.tolist(), "threshold": 0.5, "include_candidates": True}
                started = time.perf_counter()
                answer = client.post("/v1/galleries/large/search", json=body).raise_for_status().json()
                spent = {**answer["milliseconds"], "request": 1e3 * (time.perf_counter() - started)}
                spent["json"] = json_milliseconds(json.dumps(body), answer)
                # The first requests touch pages of the memory map for the first time.
                if turn >= 20:
                    for stage, milliseconds in spent.items():
                        stages.setdefault(stage, []).append(milliseconds)
    counted = ("rescore", "rerank", "answer", "json")
    stages["all_but_search"] = [sum(spent) for spent in zip(*(stages[one] for one in counted), strict=True)]
    result = {
        "items": arguments.items,
        "dim": arguments.dim,
        "index": index,
        "queries": arguments.queries,
        "build_seconds": seconds,
        "milliseconds": {stage: percentiles(values) for stage, values in stages.items()},
        "raw_milliseconds": {stage: [round(v, 4) for v in values] for stage, values in stages.items()},
    }
    for stage, row in result["milliseconds"].items():
        print(f"{stage:16} {row}")
    print(save_result("query_stages", result))


if __name__ == "__main__":
    main()
