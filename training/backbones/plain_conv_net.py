"""A small network for small images, registered with timm under `plain_conv_net` (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.models import register_model
from torch import Tensor, nn

from vicinal.models.errors import ConfigError


class PlainConvNet(nn.Module):
    """Stages of 3 x 3 convolutions, each ended by max pooling, which halves the map.

    Trained from scratch for minutes, it learns far more than a residual network of the same cost: nothing is
    thrown away before the first convolutions, and no branch has to grow out of zero. It gives (B, width) with
    the `global_pool` of `avg`, the (B, width, H, W) map with an empty one.
    """

    pretrained_cfg: dict[str, Any]

    def __init__(
        self, channels: Sequence[int] = (32, 64, 128, 256), *, layers: int = 1, global_pool: str = "avg"
    ) -> None:
        super().__init__()
        if not channels or min(*channels, layers) < 1:
            raise ConfigError(
                f"plain_conv_net needs channels and layers of 1 or more, got {channels}, {layers}"
            )
        before, stages = 3, []
        for width in channels:
            stages.append(_stage(before, width, layers))
            before = width
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1) if global_pool else nn.Identity()
        self.flatten = nn.Flatten() if global_pool else nn.Identity()
        self.pretrained_cfg = {"input_size": (3, 2 ** len(channels) * 2, 2 ** len(channels) * 2)}

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, width, H, W), or to (B, width) where it pools."""
        features: Tensor = self.flatten(self.pool(self.stages(images)))
        return features


def _stage(before: int, width: int, layers: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for layer in range(layers):
        convolution = nn.Conv2d(width if layer else before, width, 3, padding=1, bias=False)
        parts += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, nn.MaxPool2d(2))


@register_model
def plain_conv_net(pretrained: bool = False, *, num_classes: int = 0, **arguments: Any) -> PlainConvNet:
    """Create the network, without a classifier, as `timm.create_model("plain_conv_net", ...)` does."""
    if pretrained or num_classes:
        raise ConfigError("plain_conv_net has no pretrained weights and no classifier: train it from scratch")
    # What timm passes to every network and has no meaning here.
    known = {key: value for key, value in arguments.items() if not key.startswith("pretrained_cfg")}
    return PlainConvNet(**{key: value for key, value in known.items() if key != "cache_dir"})
