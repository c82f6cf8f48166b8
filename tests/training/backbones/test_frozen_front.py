"""Cutting a network: front and back together are the whole, and only the back learns."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from vicinal.training.backbones.backbone import BackboneConfig, build_network  # noqa: E402
from vicinal.training.backbones.frozen_front import CutNetwork  # noqa: E402

SMALL_RESNET = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}


def cut(name: str, stages: Any, **fields: Any) -> CutNetwork:
    torch.manual_seed(0)
    config = BackboneConfig.model_validate({"name": name, "dim": 8, **fields})
    return CutNetwork(build_network(config), stages, 32)


@pytest.mark.parametrize("pooling", ["gem", "native"])
@pytest.mark.parametrize(
    ("name", "stages", "arguments"),
    [
        ("tf_efficientnet_lite0", 5, {}),
        ("mobilenetv3_small_050", 2, {}),
        ("resnet18", 3, SMALL_RESNET),
        ("plain_conv_net", 1, {"channels": [4, 8]}),
        ("plain_conv_net", "all", {"channels": [4, 8]}),
    ],
)
def test_front_and_back_are_the_whole_network(
    name: str, stages: Any, arguments: dict[str, Any], pooling: str
) -> None:
    if name.startswith("mobilenet") and pooling == "gem":
        pytest.skip("its last layers follow the pooling")
    both = cut(name, stages, arguments=arguments, pooling=pooling).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(both(both.front(images)), both.network(images))


def test_only_the_back_learns() -> None:
    both = cut("resnet18", 2, arguments=SMALL_RESNET)
    learning = {name for name, one in both.network.named_parameters() if one.requires_grad}
    assert {name.split(".")[1] for name in learning if name.startswith("trunk")} == {"layer3", "layer4"}
    assert "head.weight" in learning
