"""A network cut in two: a front that keeps its weights, and a back that learns (torch)."""

from __future__ import annotations

import re
from typing import Literal, Self

import torch
from torch import Tensor, nn

from vicinal.models.errors import ConfigError
from vicinal.training.backbones.backbone import EmbeddingNetwork

# How timm calls the containers of stages, and stages that are attributes of their own.
_CONTAINERS = ("blocks", "stages", "layers")
_STAGE = re.compile(r"(layer|stage|s)_?\d+")


class CutNetwork(nn.Module):
    """The back of an embedding network as a module: from what the front gives to embeddings.

    Its parameters are the network's own; those of the front need no gradient from now on. The front maps from
    (B, 3, S, S) to (B, C, H, W), or to (B, width) where it is a trunk that pools itself.
    """

    def __init__(self, network: EmbeddingNetwork, frozen_stages: int | Literal["all"], side: int) -> None:
        super().__init__()
        self.network = network
        self.front, self.back = _cut(network.trunk, frozen_stages, side)
        self.front.requires_grad_(False)

    def forward(self, maps: Tensor) -> Tensor:
        """Embed what the front gave, to (B, dim), not normalized."""
        return self.network.embed(self.back(maps))

    def train(self, mode: bool = True) -> Self:
        """Training mode of the back; the front stays as it serves."""
        self.training = mode
        self.network.train(mode)
        self.front.eval()
        return self


def _cut(trunk: nn.Module, frozen_stages: int | Literal["all"], side: int) -> tuple[nn.Module, nn.Module]:
    if frozen_stages == "all":
        return trunk, nn.Identity()
    links = _links(trunk)
    ends = [place for place, (_, is_stage) in enumerate(links, start=1) if is_stage]
    modules = [module for module, _ in links]
    name = type(trunk).__name__
    if not ends or not _is_chain(trunk, modules, side):
        raise ConfigError(
            f"a {name} cannot be cut after a stage: use a convolutional network such as "
            "tf_efficientnet_lite0, resnet or convnext, or set backbone.frozen_stages to 'all'"
        )
    if frozen_stages > len(ends):
        raise ConfigError(
            f"backbone.frozen_stages is {frozen_stages}, this {name} has {len(ends)} stages: "
            "lower it, or set it to 'all'"
        )
    end = ends[frozen_stages - 1]
    return nn.Sequential(*modules[:end]), nn.Sequential(*modules[end:])


def _links(trunk: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Children in order, containers of stages taken apart, each with whether it is a stage."""
    links: list[tuple[nn.Module, bool]] = []
    for name, child in trunk.named_children():
        if name in _CONTAINERS and isinstance(child, nn.Sequential):
            links += [(stage, True) for stage in child]
        else:
            links.append((child, _STAGE.fullmatch(name) is not None))
    return links


def _is_chain(trunk: nn.Module, modules: list[nn.Module], side: int) -> bool:
    """Tell if the modules one after the other do what the trunk does: some add what is no module."""
    device = next(trunk.parameters()).device
    images = torch.linspace(-1.0, 1.0, 3 * side * side, device=device).reshape(1, 3, side, side)
    trunk.eval()
    try:
        with torch.inference_mode():
            expected, passed = trunk(images), images
            for module in modules:
                passed = module(passed)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False
    return passed.shape == expected.shape and torch.allclose(passed, expected, atol=1e-4, rtol=1e-4)
