"""Backbone: a timm network with generalized-mean pooling, layer norm, linear head and projector (torch)."""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import timm
import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor, nn

import vicinal.training.backbones.plain_conv_net  # noqa: F401 - registers its network with timm
from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray
from vicinal.calibration.frozen import Frozen
from vicinal.models.errors import BundleError, ConfigError
from vicinal.training.backbones.projection import Projection, from_classifier
from vicinal.training.backbones.weights import (
    classifier_name,
    hub_or_cache,
    load_weights,
    packaged_weights,
    read_weights,
    reason,
)

_HUB = "hf-hub:"
# What the hub's client raises without a network, of classes that it has moved before.
_NOT_CONNECTED = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "URLError")
# How timm calls the containers of stages, and stages that are attributes of their own.
_CONTAINERS = ("blocks", "stages", "layers")
_STAGE = re.compile(r"(layer|stage|s)_?\d+")
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


# TOML has no word for nothing.
_NONE_FOR_ZERO = BeforeValidator(lambda dim: None if dim == 0 else dim)


class ProjectorConfig(Frozen):
    """Layers after the embedding that the loss sees in training and that are dropped afterwards.

    Attributes:
        dim: Length of what the loss sees.
        layers: Linear layers, with a ReLU between two.
    """

    dim: int = Field(128, ge=8)
    layers: int = Field(2, ge=1)


class BackboneConfig(Frozen):
    """The network.

    Attributes:
        name: A timm architecture.
        arguments: Keyword arguments for `timm.create_model`.
        stem_pool: Keep the max pooling after the stem; without it small images keep more detail.
        pretrained: Start from timm's weights (needs a network or a filled cache).
        weights: Start from a local weights file instead; `package` takes the file that the `train` extra
            installs, which there is for tf_efficientnet_lite0.
        dim: Length of the embeddings; None, in TOML 0, keeps the backbone's own width and has no linear head.
        layer_norm: Normalize the pooled features before the head.
        pooling: `gem` for generalized-mean pooling of a feature map; `native` for what the architecture
            does itself, which any of timm's can.
        gem_power: Initial exponent of generalized-mean pooling; 1 is the average.
        freeze_batch_norm: Batch-norm layers keep their running statistics, scales and shifts, as suits
            pretrained weights and small batches.
        head: First weights of the linear head: `random`, or `classifier` for the directions in which the
            classifier of the first weights tells things apart, centered at the mean feature of the training
            images; this suits average pooling without layer norm.
        frozen_stages: Stages of the trunk, counted from the image, that keep their weights and statistics;
            `all` keeps the whole trunk.
        projector: Layers between embedding and loss that are not exported; None trains without.
    """

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    stem_pool: bool = True
    pretrained: bool = False
    weights: Literal["package"] | Path | None = None
    dim: Annotated[int | None, Field(ge=8), _NONE_FOR_ZERO] = 256
    layer_norm: bool = True
    pooling: Literal["gem", "native"] = "gem"
    gem_power: float = Field(3.0, gt=0.0)
    freeze_batch_norm: bool = False
    head: Literal["random", "classifier"] = "random"
    frozen_stages: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    projector: ProjectorConfig | None = None

    @model_validator(mode="after")
    def _has_a_head(self) -> Self:
        if self.head == "classifier" and (self.dim is None or self.layer_norm):
            raise ValueError("head 'classifier' needs a dim above 0 and layer_norm = false")
        return self


class GeneralizedMeanPooling(nn.Module):
    """Generalized-mean (GeM) pooling with a learned exponent: 1 is average pooling, infinity max pooling.

    Radenovic et al., "Fine-tuning CNN image retrieval with no human annotation", eq. 3; activations are at
    least `epsilon`, so that the root has a gradient.
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
    """Trunk, pooling, optional layer norm, optional linear head.

    The trunk maps (B, 3, S, S) to (B, width, H, W), or to (B, width) when it pools itself.
    """

    def __init__(self, trunk: nn.Module, width: int, config: BackboneConfig) -> None:
        super().__init__()
        self.trunk = trunk
        is_gem = config.pooling == "gem"
        self.pooling = GeneralizedMeanPooling(config.gem_power) if is_gem else nn.Identity()
        self.norm = nn.LayerNorm(width) if config.layer_norm else nn.Identity()
        self.head = nn.Linear(width, config.dim) if config.dim else nn.Identity()
        self.dim = config.dim or width
        self.freeze_batch_norm = config.freeze_batch_norm
        self.frozen_stages = config.frozen_stages
        for layer in self._frozen_layers():
            layer.requires_grad_(False)
        # Such as the positions of a transformer, which stand before its stages.
        for parameter in trunk.parameters(recurse=False) if self.frozen_stages else ():
            parameter.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Embed (B, 3, S, S) to (B, dim), not normalized."""
        embeddings: Tensor = self.head(self.norm(self.pooling(self.trunk(images))))
        return embeddings

    def set_head(self, projection: Projection) -> None:
        """Replace the head by one that was learnt elsewhere."""
        weight, bias = torch.from_numpy(projection.weight), torch.from_numpy(projection.bias)
        self.dim, width = weight.shape
        self.head = nn.Linear(width, self.dim)
        self.head.load_state_dict({"weight": weight, "bias": bias})

    def center_head(self, mean: Tensor) -> None:
        """Shift the head so that a feature, (width,), comes to lie at the origin."""
        if isinstance(self.head, nn.Linear):
            with torch.no_grad():
                self.head.bias.copy_(-self.head.weight @ mean.to(self.head.weight))

    def train(self, mode: bool = True) -> Self:
        """Training mode, but for frozen stages and batch-norm layers."""
        super().train(mode)
        for layer in self._frozen_layers():
            layer.eval()
        return self

    def _frozen_layers(self) -> list[nn.Module]:
        frozen = _first_stages(self.trunk, self.frozen_stages)
        if self.freeze_batch_norm:
            frozen += [layer for layer in self.modules() if isinstance(layer, BATCH_NORMS)]
        return frozen


def build_network(config: BackboneConfig, *, input_size: int | None = None) -> EmbeddingNetwork:
    """Create the network and load its first weights.

    Position embeddings of a transformer are resampled to `input_size`, the pixels a side of what it will be
    given; None keeps what the architecture is meant for.
    """
    trunk = _create_trunk(config)
    if config.weights is not None:
        path, weights = _first_weights(config)
        load_weights(trunk, weights, f"'{path}' does not hold weights of '{config.name}'")
    if not config.stem_pool:
        if not isinstance(getattr(trunk, "maxpool", None), nn.Module):
            raise ConfigError(f"backbone '{config.name}' has no stem pooling: remove `stem_pool = false`")
        trunk.maxpool = nn.Identity()
    network = EmbeddingNetwork(trunk, _width(trunk, config, input_size), config)
    if config.head == "classifier":
        matrix = classifier_of(config)
        if matrix is None or config.dim is None:
            raise ConfigError(
                f"the first weights of '{config.name}' have no linear classifier to make a head of: "
                "set backbone.head to 'random', or start from weights that have one"
            )
        network.set_head(from_classifier(matrix, config.dim))
    return network


def classifier_of(config: BackboneConfig) -> FloatArray | None:
    """(classes, width) classifier of a network's first weights, if any; see `projection.from_classifier`."""
    if config.weights is not None:
        names = classifier_name(
            _create_trunk(config.model_copy(update={"weights": None, "pretrained": False}))
        )
        _, weights = _first_weights(config)
        found = [weights[f"{name}.weight"] for name in names if f"{name}.weight" in weights]
    elif config.pretrained:
        layer = _create_trunk(config, with_classifier=True).get_classifier()
        found = [layer.weight] if isinstance(layer, nn.Linear) else []
    else:
        found = []
    matrices = [one.detach().float().numpy() for one in found if one.ndim == 2]
    return matrices[0] if len(matrices) == 1 else None


def build_projector(dim: int, config: ProjectorConfig | None) -> nn.Module:
    """Layers of width `dim` between embedding and loss, dropped after training; none without a config.

    "Supervised Metric Learning to Rank for Retrieval via Contextual Similarity Optimization", ICML 2023,
    trains some of its networks with such a projector.
    """
    if config is None:
        return nn.Identity()
    layers: list[nn.Module] = []
    for width, following in pairwise([dim] * config.layers + [config.dim]):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _first_stages(trunk: nn.Module, frozen_stages: int | Literal["all"]) -> list[nn.Module]:
    """Children of a trunk up to the end of a stage, counted from the image."""
    if frozen_stages == "all":
        return [trunk]
    links: list[tuple[nn.Module, bool]] = []
    for name, child in trunk.named_children():
        if name in _CONTAINERS and isinstance(child, nn.Sequential):
            links += [(stage, True) for stage in child]
        else:
            links.append((child, _STAGE.fullmatch(name) is not None))
    ends = [place for place, (_, is_stage) in enumerate(links, start=1) if is_stage]
    if frozen_stages > len(ends):
        raise ConfigError(
            f"backbone.frozen_stages is {frozen_stages}, this {type(trunk).__name__} has {len(ends)} stages: "
            "lower it, or set it to 'all'"
        )
    return [module for module, _ in links[: ends[frozen_stages - 1]]] if frozen_stages else []


def _first_weights(config: BackboneConfig) -> tuple[Path, dict[str, Tensor]]:
    path = config.weights if isinstance(config.weights, Path) else packaged_weights(config.name)
    return path, read_weights(path, config.name, config.arguments)


def _create_trunk(config: BackboneConfig, *, with_classifier: bool = False) -> Any:
    pretrained = config.pretrained and config.weights is None
    # A name of the hub is a configuration there, whatever the weights.
    fetches = pretrained or config.name.startswith(_HUB)
    options: dict[str, Any] = {} if with_classifier else {"num_classes": 0}
    options |= config.arguments
    if config.pooling == "gem" and not with_classifier:
        options["global_pool"] = ""
    try:
        with hub_or_cache() if fetches else nullcontext():
            return timm.create_model(config.name, pretrained=pretrained, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        if fetches and "pretrained" not in str(error).lower() and "Unknown model" not in str(error):
            raise _no_weights(config.name, error) from error
        raise ConfigError(f"timm cannot create '{config.name}': {reason(error)}") from error
    except Exception as error:  # the hub client raises classes of three libraries
        if not fetches:
            raise
        raise _no_weights(config.name, error) from error


def _width(trunk: Any, config: BackboneConfig, input_size: int | None) -> int:
    """Channels of the trunk's output, tried out at the input size."""
    size = trunk.pretrained_cfg.get("input_size", (3, 224, 224))
    try:
        if input_size is not None:
            size = (3, input_size, input_size)
            # Networks that take any size have no such method.
            if hasattr(trunk, "set_input_size"):
                trunk.set_input_size(size[1:])
        with torch.inference_mode():
            output = trunk.eval()(torch.zeros(1, *size))
        shape = tuple(output.shape)
    except (AssertionError, AttributeError, RuntimeError, TypeError) as error:
        at = f" at {input_size} pixels" if input_size else ""
        raise ConfigError(f"backbone '{config.name}' does not run{at}: {reason(error)}") from error
    expected = 4 if config.pooling == "gem" else 2
    # Some transformers give (B, H, W, width): pooling that over the last two axes would mix channels.
    if len(shape) != expected or (expected == 4 and getattr(trunk, "output_fmt", "NCHW") != "NCHW"):
        raise ConfigError(
            f"backbone '{config.name}' gives {shape}, {config.pooling} pooling cannot use that: "
            "set pooling = 'native' and leave global_pool alone"
        )
    return int(shape[1])


def _no_weights(name: str, error: Exception) -> BundleError:
    kind = type(error).__name__
    why = "there is no connection to the hub" if kind in _NOT_CONNECTED else kind
    return BundleError(
        f"the weights of '{name}' cannot be fetched ({why}): ",
        advise("connect to the network once, or give a local file with {weights}"),
    )
