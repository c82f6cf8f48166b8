"""A bundle from any timm backbone: its weights, a head learnt without training, its preprocessing (torch)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
from timm.data.config import resolve_model_data_config

from vicinal.models.backbone import BackboneConfig, EmbeddingNetwork, build_network
from vicinal.models.bundle import ModelBundle
from vicinal.models.export.network import export_network

__all__ = ["export_backbone"]


def export_backbone(
    config: BackboneConfig, path: Path, *, name: str, licence: str = "unknown"
) -> ModelBundle:
    """Make a bundle from a timm architecture, with hub weights or a local file.

    Without a head of its own (`dim = None`) the embedding is the pooled feature.

    Raises:
        ConfigError: timm does not know the architecture.
        BundleError: Weights cannot be had, or the parity check fails.
    """
    network = build_network(config)
    fields = {
        "name": name,
        "backbone": config.name,
        "preprocessing": _timm_preprocessing(network),
        "training": {"weights": _origin(config), "timm": timm.__version__},
        "licence": licence,
    }
    return export_network(network, path, fields)


def _origin(config: BackboneConfig) -> str:
    if config.weights is None:
        return "hub" if config.pretrained else "random"
    return config.weights if isinstance(config.weights, str) else config.weights.name


def _timm_preprocessing(network: EmbeddingNetwork) -> dict[str, Any]:
    data = resolve_model_data_config(network.trunk)
    return {
        "input_size": data["input_size"][-1],
        "fit": "squash" if data["crop_mode"] == "squash" else "crop",
        "crop_fraction": data["crop_pct"],
        "interpolation": data["interpolation"] if data["interpolation"] != "random" else "bicubic",
        "mean": data["mean"],
        "std": data["std"],
    }
