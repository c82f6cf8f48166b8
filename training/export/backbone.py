"""A bundle from any timm backbone: its weights, a head learnt without training, its preprocessing (torch)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import timm
from timm.data.config import resolve_model_data_config

from vicinal.calibration.advice import advise
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import ConfigError
from vicinal.training.backbones.backbone import BackboneConfig, EmbeddingNetwork, build_network, classifier_of
from vicinal.training.backbones.projection import Projection, from_classifier, from_features
from vicinal.training.export.network import export_network
from vicinal.training.export.sample import Sample


@dataclass(frozen=True)
class HeadConfig:
    """Way from long features to short embeddings.

    Attributes:
        projection: `classifier` keeps what the classifier of the weights looks at; `pca` and `whitening`
            keep what differs most among a sample of images; None takes the classifier where there is one
            and no sample, else PCA.
        whitening: How far `whitening` goes, from 0, which is PCA, to 1.
    """

    dim: int
    projection: Literal["classifier", "pca", "whitening"] | None = None
    whitening: float = 0.5


def export_backbone(
    config: BackboneConfig,
    path: Path,
    *,
    fields: Mapping[str, Any],
    input_size: int | None = None,
    head: HeadConfig | None = None,
    sample: Sample | None = None,
) -> ModelBundle:
    """Make a bundle from a timm architecture, with weights of the hub, a file or a package.

    With `dim = None` and without a head the embedding is the pooled feature; without an `input_size` the
    images are of the size that the architecture is meant for.
    """
    network = build_network(config, input_size=input_size)
    training = {"weights": _origin(config), "timm": timm.__version__}
    manifest = {
        **fields,
        "backbone": config.name,
        "preprocessing": _timm_preprocessing(network, input_size),
        "training": training,
    }
    if head is not None:
        projection, training["head"] = _learn_head(head, config, network, manifest, sample)
        network.set_head(projection)
    return export_network(network, path, manifest)


def _learn_head(
    head: HeadConfig,
    config: BackboneConfig,
    network: EmbeddingNetwork,
    manifest: Mapping[str, Any],
    sample: Sample | None,
) -> tuple[Projection, str]:
    """The head, and what it was learnt from, for people."""
    kind = head.projection or ("pca" if sample else "classifier")
    if kind == "classifier":
        classifier = classifier_of(config)
        if classifier is None:
            raise ConfigError(
                f"the weights of '{config.name}' have no classifier to learn {head.dim} numbers from: ",
                advise("give a folder of photos with {images}"),
            )
        return from_classifier(classifier, head.dim), f"a classifier of {len(classifier):,} classes"
    if sample is None:
        advice = advise(
            "{projection} {kind} is learnt on photos: give a folder of them with {images}", kind=kind
        )
        raise ConfigError(advice=advice)
    with tempfile.TemporaryDirectory() as folder:
        # ONNX Runtime is several times as fast as torch on a processor.
        features = sample.features(Embedder(export_network(network, Path(folder), manifest)))
    power = head.whitening if kind == "whitening" else 0.0
    learnt_from = f"principal components of {len(features):,} images"
    learnt_from += f", whitened to the power {power:g}" if power else ""
    return from_features(features, head.dim, whitening=power), learnt_from


def _origin(config: BackboneConfig) -> str:
    if config.weights is None:
        return "hub" if config.pretrained else "random"
    return config.weights if isinstance(config.weights, str) else config.weights.name


def _timm_preprocessing(network: EmbeddingNetwork, input_size: int | None) -> dict[str, Any]:
    data = resolve_model_data_config(network.trunk)
    return {
        "input_size": input_size or data["input_size"][-1],
        "fit": "squash" if data["crop_mode"] == "squash" else "crop",
        "crop_fraction": data["crop_pct"],
        "interpolation": data["interpolation"] if data["interpolation"] != "random" else "bicubic",
        "mean": data["mean"],
        "std": data["std"],
    }
