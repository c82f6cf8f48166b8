"""Backbone: a timm network with generalized-mean pooling, layer norm and a linear head (torch)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from models.config import BackboneConfig
from models.errors import BundleError, ConfigError

__all__ = ["EmbeddingNetwork", "GeneralizedMeanPooling", "build_network"]


class GeneralizedMeanPooling(nn.Module):
    """Generalized-mean (GeM) pooling with a learned exponent.

    Radenovic et al., "Fine-tuning CNN image retrieval with no human annotation", eq. 3.

    Args:
        power: Initial exponent; 1 is average pooling, infinity max pooling.
        epsilon: Smallest activation, so that the root has a gradient.
    """

    def __init__(self, power: float = 3.0, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.tensor(float(power)))
        self.epsilon = epsilon

    def forward(self, features: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C), in float32."""
        positive = features.float().clamp(min=self.epsilon)
        return positive.pow(self.power).mean(dim=(-2, -1)).pow(1.0 / self.power)


class EmbeddingNetwork(nn.Module):
    """Trunk, GeM pooling, optional layer norm, optional linear head.

    Args:
        trunk: Module that maps (B, 3, S, S) to (B, width, H, W).
        width: Channels that the trunk gives.
        config: Pooling, norm and head.
    """

    def __init__(self, trunk: nn.Module, width: int, config: BackboneConfig) -> None:
        super().__init__()
        self.trunk = trunk
        self.pooling = GeneralizedMeanPooling(config.gem_power)
        self.norm = nn.LayerNorm(width) if config.layer_norm else nn.Identity()
        self.head = nn.Linear(width, config.dim) if config.dim else nn.Identity()
        self.dim = config.dim or width

    def forward(self, images: Tensor) -> Tensor:
        """Embed (B, 3, S, S) to (B, dim), not normalized."""
        embeddings: Tensor = self.head(self.norm(self.pooling(self.trunk(images))))
        return embeddings


def build_network(config: BackboneConfig) -> EmbeddingNetwork:
    """Create the network and load its first weights.

    Raises:
        ConfigError: timm does not know the name or an argument, or gives no feature map.
        BundleError: Weights cannot be fetched or read.
    """
    trunk = _create_trunk(config)
    if not config.stem_pool:
        if not isinstance(getattr(trunk, "maxpool", None), nn.Module):
            raise ConfigError(f"backbone '{config.name}' has no stem pooling: remove `stem_pool = false`")
        trunk.maxpool = nn.Identity()
    width = getattr(trunk, "head_hidden_size", None) or trunk.num_features
    return EmbeddingNetwork(trunk, int(width), config)


def _create_trunk(config: BackboneConfig) -> Any:
    pretrained = config.pretrained and config.weights is None
    options: dict[str, Any] = {"num_classes": 0, "global_pool": "", **config.arguments}
    if config.weights is not None:
        options["checkpoint_path"] = str(_existing(config.weights))
    try:
        return timm.create_model(config.name, pretrained=pretrained, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        if config.weights is not None:
            raise BundleError(
                f"'{config.weights}' does not hold weights of '{config.name}': {_first_line(error)}"
            ) from error
        if pretrained and "pretrained" not in str(error).lower() and "Unknown model" not in str(error):
            raise _no_weights(config.name, error) from error
        raise ConfigError(f"timm cannot create '{config.name}': {_first_line(error)}") from error
    except Exception as error:  # the hub client and the weight readers raise classes of their own
        if config.weights is not None:
            raise BundleError(
                f"'{config.weights}' is not a readable weights file: {_first_line(error)}"
            ) from error
        if not pretrained:
            raise
        raise _no_weights(config.name, error) from error


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise BundleError(f"there is no weights file '{path}'")
    return path


def _no_weights(name: str, error: Exception) -> BundleError:
    return BundleError(
        f"the weights of '{name}' cannot be fetched ({type(error).__name__}): "
        "connect to the network once, or give a local file with --weights"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
