"""Export: from a trained refiner to that of a bundle, checked in ONNX Runtime and in numpy (torch)."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx.external_data_helper import set_external_data

from vicinal.calibration.arrays import AnyArray
from vicinal.models.bundle import ModelBundle, sha256_of
from vicinal.models.errors import BundleError
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE, RefinerArchitecture
from vicinal.models.runtime import open_session
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefinementError
from vicinal.refine.neighbor_features import N_RADII
from vicinal.refine.weights import parameter_shapes, save_weights
from vicinal.training.export.network import write_onnx
from vicinal.training.refiner.network import ContextRefinerNetwork

PARITY_TOLERANCE = 1e-5
_FLOAT_BYTES = 4


def export_refiner(
    network: ContextRefinerNetwork, bundle: ModelBundle, fields: Mapping[str, Any]
) -> ModelBundle:
    """Put a refiner into a bundle in place of its own, which goes before the new one's parity check."""
    architecture = network.architecture
    if architecture.dim != bundle.dim:
        raise RefinementError(
            f"the refiner takes {architecture.dim}-d embeddings, bundle '{bundle.name}' makes "
            f"{bundle.dim}-d ones: train it with this bundle"
        )
    network = network.cpu().float().eval()
    plain = bundle.without_refiner()
    _write_files(network, plain.path)
    finished = plain.with_refiner({**fields, "architecture": architecture.model_dump()})
    try:
        _check_parity(network, finished)
    except RefinementError:
        finished.without_refiner()
        raise
    return finished


def _write_files(network: ContextRefinerNetwork, folder: Path) -> None:
    # Written elsewhere first: a service may be reading the files of the refiner before.
    with tempfile.TemporaryDirectory(dir=folder) as written:
        weights, graph = Path(written) / REFINER_WEIGHTS_FILE, Path(written) / REFINER_FILE
        save_weights(weights, network.step_arrays(), network.architecture)
        _write_graph(network, graph)
        _refer_to_weights(graph, weights, network.architecture)
        for file in (weights, graph):
            file.replace(folder / file.name)


def _write_graph(network: ContextRefinerNetwork, path: Path) -> None:
    inputs = _examples(network.architecture, n=3)
    axes = {name: {0: "batch", 1: "neighbors"} for name in inputs} | {"query": {0: "batch"}}
    outputs = ["steps", "attention", *(["lengths"] if network.architecture.level else [])]
    tensors = {name: torch.from_numpy(one) for name, one in inputs.items()}
    try:
        write_onnx(network, tensors, path, outputs=outputs, free_axes=axes)
    except BundleError as error:
        raise RefinementError(str(error)) from error


def _refer_to_weights(graph: Path, weights: Path, architecture: RefinerArchitecture) -> None:
    """Let the graph read its large arrays from the file of weights instead of keeping them a second time."""
    places = _places(weights, architecture)
    model = onnx.load(graph)
    for tensor in model.graph.initializer:
        if tensor.name in places:
            offset, length = places[tensor.name]
            set_external_data(tensor, REFINER_WEIGHTS_FILE, offset, length)
            tensor.ClearField("raw_data")
    onnx.save(model, graph)


def _places(weights: Path, architecture: RefinerArchitecture) -> dict[str, tuple[int, int]]:
    """Offset and length in bytes of each array in the file of weights, by its name in the network."""
    offset = weights.stat().st_size - np.load(weights, mmap_mode="r").nbytes
    places = {}
    for step in range(architecture.n_steps):
        for name, shape in parameter_shapes(architecture).items():
            length = _FLOAT_BYTES * math.prod(shape)
            places[f"steps.{step}.{name}"] = (offset, length)
            offset += length
    return places


def _examples(architecture: RefinerArchitecture, n: int) -> dict[str, AnyArray]:
    """Random queries, each near its context, the last one without any neighbor; by input of the graph."""
    rng = np.random.default_rng(0)
    dim, k = architecture.dim, architecture.n_neighbors + 1
    query = normalize(rng.normal(size=(n, dim)))
    near = query[:, None] + rng.normal(size=(n, k, dim)) / math.sqrt(dim)
    context = normalize(near.reshape(-1, dim)).reshape(n, k, dim)
    mask = np.arange(k) < rng.integers(1, k + 1, size=(n, 1))
    mask[-1] = False
    inputs = {"query": query, "context": context, "mask": mask}
    if architecture.level:
        inputs["radii"] = rng.uniform(size=(n, k, N_RADII)).astype(np.float32)
    return inputs


def _check_parity(network: ContextRefinerNetwork, bundle: ModelBundle) -> None:
    inputs = _examples(network.architecture, n=7)
    with torch.inference_mode():
        tensors = [torch.from_numpy(one) for one in inputs.values()]
        expected = [output.numpy() for output in network(*tensors)]
    refined = ContextRefiner(bundle).attend(
        inputs["query"], inputs["context"], inputs["mask"], radii=inputs.get("radii")
    )
    path = bundle.path / REFINER_FILE
    try:
        session = open_session(path, sha256_of(path), device="cpu", threads=1)
    except BundleError as error:
        raise RefinementError(str(error)) from error
    for runtime, actual in (
        ("numpy", [refined.steps, refined.attention, refined.lengths][: len(expected)]),
        ("ONNX Runtime", session.run(None, inputs)),
    ):
        pairs = zip(actual, expected, strict=True)
        difference = max(float(np.abs(one - other).max()) for one, other in pairs)
        if not difference < PARITY_TOLERANCE:
            raise RefinementError(
                f"{runtime} and torch differ by {difference:.1e} in the refiner of bundle '{bundle.name}', "
                f"at most {PARITY_TOLERANCE:.0e} is accepted"
            )
