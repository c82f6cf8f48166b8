"""A large gallery of synthetic items, searched over HTTP: what measurements of time have in common."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pyarrow as pa
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from benchmarks.common.server_process import server_process
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE, RefinerArchitecture
from vicinal.models.similarity import normalize
from vicinal.refine.weights import parameter_shapes, save_weights
from vicinal.service.settings import Settings

__all__ = [
    "NAME",
    "N_LABELS",
    "LargeGallery",
    "clustered_vectors",
    "item_rows",
    "items_and_queries",
    "labelled_vectors",
    "large_gallery",
    "write_bundle",
    "write_gallery",
    "write_refiner",
]

NAME = "large"
N_LABELS = 5000


def clustered_vectors(
    rng: np.random.Generator, n: int, dim: int, centers: np.ndarray, basis: np.ndarray
) -> np.ndarray:
    """(n, dim) float32 unit vectors: clusters in a subspace, and isotropic noise.

    Args:
        rng: What they are drawn with.
        n: How many.
        dim: Their dimensions.
        centers: (c, s) centers of the clusters in the subspace.
        basis: (s, dim) basis of the subspace.
    """
    latent = centers[rng.integers(0, len(centers), n)] + 0.6 * rng.normal(size=(n, centers.shape[1]))
    vectors = (latent @ basis + 4.0 * rng.normal(size=(n, dim))).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def items_and_queries(n_items: int, n_queries: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_items, dim) and (n_queries, dim) unit vectors of the same 5,000 clusters in 64 dimensions."""
    rng = np.random.default_rng(0)
    centers, basis = rng.normal(size=(5000, 64)), rng.normal(size=(64, dim))
    items = clustered_vectors(rng, n_items, dim, centers, basis)
    return items, clustered_vectors(rng, n_queries, dim, centers, basis)


def labelled_vectors(
    n: int, dim: int, *, per_label: int = 10, spread: float = 1.1
) -> tuple[np.ndarray, np.ndarray]:
    """(n, dim) float32 unit vectors around a center a label, and (n,) labels.

    Args:
        n: How many.
        dim: Their dimensions.
        per_label: Vectors a label; the last may have fewer.
        spread: Noise by the length of a center; from 1 on classes overlap.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(n) // per_label
    centers = rng.normal(size=(labels[-1] + 1, dim)).astype(np.float32)
    return normalize(centers[labels] + spread * rng.normal(size=(n, dim)).astype(np.float32)), labels


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


def write_refiner(bundle: ModelBundle) -> ModelBundle:
    """Give a bundle a refiner of the form that ships, with random weights: time does not depend on them.

    Args:
        bundle: A bundle, or a space, whose folder may be missing.
    """
    architecture = RefinerArchitecture(
        dim=bundle.dim, n_steps=1, n_neighbors=8, n_heads=1, form="gated", expansion=True, level=True
    )
    rng = np.random.default_rng(0)
    weights = {name: 0.1 * rng.normal(size=shape) for name, shape in parameter_shapes(architecture).items()}
    bundle.path.mkdir(parents=True, exist_ok=True)
    save_weights(bundle.path / REFINER_WEIGHTS_FILE, [weights], architecture)
    (bundle.path / REFINER_FILE).write_bytes(b"never run here: the weights are what is read")
    return bundle.with_refiner({"architecture": architecture, "sides": "both", "rerank": "off"})


def item_rows(
    first: int, embeddings: np.ndarray, *, n_labels: int = N_LABELS, thumbnail: bytes = b"thumbnail"
) -> pa.Table:
    """Rows of a gallery for numbered items, whose labels take turns.

    Args:
        first: Number of the first item.
        embeddings: (n, d) float32 unit vectors.
        n_labels: How many labels there are.
        thumbnail: The thumbnail of every item.
    """
    numbers = range(first, first + len(embeddings))
    return pa.table(
        {
            "id": [f"folder/item-{i:07d}.jpg" for i in numbers],
            "label": [f"label-{i % n_labels:04d}" for i in numbers],
            "uri": [f"/photos/folder/item-{i:07d}.jpg" for i in numbers],
            "metadata": ['{"shelf": "a", "price": 12.5}'] * len(embeddings),
            "thumbnail": pa.array([thumbnail] * len(embeddings), pa.binary()),
            "content_sha256": pa.array([i.to_bytes(32, "big") for i in numbers], pa.binary(32)),
            "source": pa.nulls(len(embeddings), pa.string()),
            "file_size": pa.nulls(len(embeddings), pa.int64()),
            "modified_at": pa.nulls(len(embeddings), pa.timestamp("us", tz="UTC")),
            "embedding": as_fixed_lists(embeddings),
        }
    )


@dataclass(frozen=True)
class LargeGallery:
    """A gallery that a server of its own answers for.

    Attributes:
        gallery: The gallery.
        bundle: Its bundle.
        build_seconds: What its neighbor lists and its version took.
        client: Client of the server.
    """

    gallery: Gallery
    bundle: ModelBundle
    build_seconds: dict[str, float]
    client: httpx.Client

    def search(self, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer to a search, and the milliseconds of its request as the client sees them."""
        started = time.perf_counter()
        answer = self.client.post(f"/v1/galleries/{NAME}/search", json=body).raise_for_status().json()
        return answer, 1e3 * (time.perf_counter() - started)


@contextmanager
def large_gallery(items: np.ndarray, *, n_labels: int = N_LABELS) -> Iterator[LargeGallery]:
    """Write a gallery, and serve it while the context lasts.

    Args:
        items: (n, d) float32 unit vectors.
        n_labels: How many labels the items have.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), bundle=Path(folder) / "bundle")
        bundle = write_bundle(settings.bundle, items.shape[1])
        gallery = Gallery(settings.galleries_path / NAME)
        seconds = write_gallery(gallery, items, bundle, n_labels)
        with (
            server_process(settings.data_dir, settings.bundle) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            yield LargeGallery(gallery, bundle, seconds, client)


def write_gallery(
    gallery: Gallery,
    embeddings: np.ndarray,
    bundle: ModelBundle,
    n_labels: int = N_LABELS,
    *,
    graph: NeighborGraph | None = None,
    index: str = "auto",
) -> dict[str, float]:
    """Write a gallery of numbered items, and say how many seconds its neighbor lists and its version took.

    Args:
        gallery: The gallery; there is none there yet.
        embeddings: (n, d) float32 unit vectors.
        bundle: Its bundle.
        n_labels: How many labels the items have.
        graph: Its neighbor lists; made when None.
        index: Kind of its index.
    """
    stream = io.BytesIO()
    Image.new("RGB", (64, 64), "gray").save(stream, "JPEG")
    rows = item_rows(0, embeddings, n_labels=n_labels, thumbnail=stream.getvalue())
    seconds = {}
    with gallery.writing():
        gallery.start(rows, bundle=bundle.fingerprint, bundle_name=bundle.name)
        started = time.perf_counter()
        graph = graph or build_neighbor_graph(embeddings)
        seconds["neighbors"] = round(time.perf_counter() - started, 1)
        started = time.perf_counter()
        gallery.publish(graph, index=index)
        seconds["publish"] = round(time.perf_counter() - started, 1)
    return seconds
