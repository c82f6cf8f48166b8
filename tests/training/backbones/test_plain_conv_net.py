"""The small network for small images, under timm's names."""

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig, build_network  # noqa: E402


@pytest.mark.parametrize("pooling", ["gem", "native"])
def test_it_is_a_backbone_with_either_pooling(pooling: str) -> None:
    config = BackboneConfig(name="plain_conv_net", arguments={"channels": [4, 8]}, dim=16, pooling=pooling)
    network = build_network(config).eval()
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 16)


def test_pretrained_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="no pretrained weights"):
        build_network(BackboneConfig(name="plain_conv_net", pretrained=True))


@pytest.mark.parametrize("arguments", [{"channels": []}, {"channels": [0, 4]}, {"layers": 0}])
def test_a_network_without_layers_is_refused(arguments: dict) -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        build_network(BackboneConfig(name="plain_conv_net", arguments=arguments))
