"""A torch network as an ONNX graph in a model bundle, checked against torch (torch)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.models.bundle import BACKBONE_FILE, MANIFEST_FILE, ModelBundle, Preprocessing
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.models.similarity import normalize
from vicinal.training.backbones.backbone import EmbeddingNetwork
from vicinal.training.export.forms import forget_sources

PARITY_TOLERANCE = 1e-4


def export_network(network: EmbeddingNetwork, path: Path, fields: Mapping[str, Any]) -> ModelBundle:
    """Write a network as a bundle, over an earlier one, and check that ONNX Runtime agrees with torch."""
    path.mkdir(parents=True, exist_ok=True)
    network = network.cpu().eval().to(memory_format=torch.contiguous_format)
    preprocessing = Preprocessing.model_validate(fields["preprocessing"])
    side = preprocessing.input_size
    write_onnx(
        network,
        {"images": torch.zeros(2, 3, side, side)},
        path / BACKBONE_FILE,
        outputs=["embeddings"],
        free_axes={"images": {0: "batch"}},
    )
    bundle = ModelBundle.write(path, {**fields, "dim": network.dim})
    try:
        _check_parity(network, bundle)
    except BundleError:
        # Without its manifest nobody can serve the network that failed.
        (path / MANIFEST_FILE).unlink()
        raise
    return bundle


def write_onnx(
    network: nn.Module,
    examples: Mapping[str, Tensor],
    path: Path,
    *,
    outputs: Sequence[str],
    free_axes: Mapping[str, Mapping[int, str]],
) -> None:
    """Write an ONNX graph; `free_axes` of each input have any length from 1 on, equal names equal ones."""
    free = {name: torch.export.Dim(name, min=1) for axes in free_axes.values() for name in axes.values()}
    shapes = tuple({axis: free[name] for axis, name in free_axes[one].items()} for one in examples)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter warns of its own internals; a parity check is what counts.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                network,
                tuple(examples.values()),
                path,
                input_names=list(examples),
                output_names=list(outputs),
                dynamic_shapes=shapes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # the exporter raises many classes without a public base
            raise BundleError(f"the network cannot be exported to ONNX: {error}") from error
    forget_sources(path)


def _check_parity(network: EmbeddingNetwork, bundle: ModelBundle) -> None:
    side = bundle.preprocessing.input_size
    images = np.random.default_rng(0).normal(size=(5, 3, side, side)).astype(np.float32)
    with torch.inference_mode():
        expected = normalize(network(torch.from_numpy(images)).numpy())
    embedder = Embedder(bundle, device="cpu")
    actual = embedder.finish(embedder.infer(list(images)))
    difference = float(np.abs(actual - expected).max())
    if difference >= PARITY_TOLERANCE:
        raise BundleError(
            f"ONNX Runtime and torch differ by {difference:.1e} in bundle '{bundle.name}', "
            f"at most {PARITY_TOLERANCE:.0e} is accepted"
        )
