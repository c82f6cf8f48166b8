"""Backbone: a timm network with pooling, norm and head, or one clear line why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

from vicinal.models.errors import BundleError, ConfigError  # noqa: E402
from vicinal.training.backbones.backbone import (  # noqa: E402
    BackboneConfig,
    GeneralizedMeanPooling,
    build_network,
)


def _changed(config: BackboneConfig, **changes: object) -> BackboneConfig:
    return BackboneConfig.model_validate({**config.model_dump(), **changes})


def _images(n_images: int = 2, side: int = 32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(n_images, 3, side, side))).float()


def _assert_one_clear_line(error: Exception, *words: str) -> None:
    message = str(error)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network and an empty cache, also for hub code that has read its settings already."""
    from huggingface_hub import constants

    for name in ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))


@pytest.fixture
def weights(tiny_backbone: BackboneConfig, tmp_path: Path) -> Path:
    """Weights file of the tiny trunk, all values shifted so that they are not those of a fresh one."""
    trunk = timm.create_model(tiny_backbone.name, num_classes=0, **tiny_backbone.arguments)
    path = tmp_path / "trunk.pth"
    torch.save({name: value + 1 for name, value in trunk.state_dict().items()}, path)
    return path


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0, 10.0])
def test_pooling_equals_the_slow_loop(power: float) -> None:
    """Eq. 3: the p-th root of the mean p-th power of each channel."""
    features = np.random.default_rng(0).uniform(0.0, 2.0, (2, 3, 4, 5))
    pooled = GeneralizedMeanPooling(power)(torch.from_numpy(features)).detach().numpy()
    for image, channel in np.ndindex(2, 3):
        values = [max(value, 1e-6) ** power for value in features[image, channel].ravel()]
        assert pooled[image, channel] == pytest.approx((sum(values) / 20) ** (1 / power), rel=1e-4)


def test_network_without_a_head_gives_the_width_of_its_features(tiny_backbone: BackboneConfig) -> None:
    network = build_network(_changed(tiny_backbone, dim=None, layer_norm=False)).eval()
    features = network.trunk(_images())
    assert network.dim == features.shape[1] == 16
    assert torch.equal(network(_images()), network.pooling(features))


def test_image_embeds_alone_as_in_a_batch(tiny_backbone: BackboneConfig) -> None:
    network = build_network(tiny_backbone).eval()
    with torch.inference_mode():
        together = network(_images(4))
        alone = torch.cat([network(image[None]) for image in _images(4)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_local_weights_are_loaded(tiny_backbone: BackboneConfig, weights: Path) -> None:
    network = build_network(_changed(tiny_backbone, weights=weights))
    stored = torch.load(weights)
    assert all(torch.equal(value, stored[name]) for name, value in network.trunk.state_dict().items())


@pytest.mark.parametrize("name", ["broken.pth", "broken.safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all" * 9])
def test_unreadable_weights_file_is_refused(
    tiny_backbone: BackboneConfig, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BundleError) as caught:
        build_network(_changed(tiny_backbone, weights=path))
    _assert_one_clear_line(caught.value, name)


def test_unknown_backbone_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        build_network(BackboneConfig(name="resnet1000"))
    _assert_one_clear_line(caught.value, "resnet1000")


def test_hub_weights_without_a_network_say_what_to_do(offline: None) -> None:
    with pytest.raises(BundleError) as caught:
        build_network(BackboneConfig(name="resnet18", pretrained=True))
    _assert_one_clear_line(caught.value, "resnet18", "cannot be fetched", "file with weights")


def test_frozen_batch_norm_stays_while_the_rest_trains(tiny_backbone: BackboneConfig) -> None:
    """Running statistics, scales and shifts; and it uses the statistics, not those of the batch."""
    network = build_network(_changed(tiny_backbone, freeze_batch_norm=True)).train()
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    before = [value.clone() for layer in norms for value in layer.state_dict().values()]
    network(_images(8)).square().sum().backward()
    assert not any(layer.training for layer in norms)
    assert all(parameter.grad is None for layer in norms for parameter in layer.parameters())
    assert network.trunk.conv1.weight.grad is not None
    after = [value for layer in norms for value in layer.state_dict().values()]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
