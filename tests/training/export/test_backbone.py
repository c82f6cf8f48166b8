"""Export of backbones: their weights, a head learnt without training, their preprocessing."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
pytest.importorskip("onnxscript")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig  # noqa: E402
from vicinal.training.export.backbone import HeadConfig, export_backbone  # noqa: E402
from vicinal.training.export.sample import Sample, folder_sample  # noqa: E402

pytestmark = pytest.mark.slow

PLAIN = {"pooling": "native", "dim": None, "layer_norm": False}
TINY = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}
TINY_TOWER = {"embed_dim": 32, "depth": 1, "num_heads": 2}


@pytest.fixture
def config(tmp_path: Path) -> BackboneConfig:
    """A network of 16 numbers whose weights file has a classifier of 12 classes."""
    torch.manual_seed(0)
    whole = timm.create_model("resnet18", num_classes=12, **TINY)
    torch.save(whole.state_dict(), tmp_path / "whole.pth")
    fields = {"name": "resnet18", "arguments": TINY, "weights": tmp_path / "whole.pth", **PLAIN}
    return BackboneConfig.model_validate(fields)


@pytest.fixture
def sample(color_folder: Path) -> Sample:
    return folder_sample(color_folder)


def test_backbone_without_training_becomes_a_bundle(tmp_path: Path) -> None:
    """Preprocessing comes from timm, the embedding is the pooled feature."""
    config = BackboneConfig(name="resnet18", arguments=TINY, dim=None, layer_norm=False)
    fields = {"name": "plain", "licence": "Apache-2.0"}
    bundle = export_backbone(config, tmp_path / "plain", fields=fields)
    assert bundle.dim == 16
    assert bundle.manifest.preprocessing.input_size == 224
    assert bundle.manifest.training["weights"] == "random"
    assert bundle.manifest.licence == "Apache-2.0"


def test_a_head_from_the_classifier_needs_no_images(config: BackboneConfig, tmp_path: Path) -> None:
    bundle = export_backbone(
        config, tmp_path / "short", fields={"name": "short"}, input_size=32, head=HeadConfig(5)
    )
    assert (bundle.dim, bundle.manifest.preprocessing.input_size) == (5, 32)
    assert bundle.manifest.training["head"] == "a classifier of 12 classes"


def test_weights_without_a_classifier_ask_for_images(tmp_path: Path) -> None:
    config = BackboneConfig.model_validate({"name": "resnet18", "arguments": TINY, **PLAIN})
    with pytest.raises(ConfigError, match=r"no classifier to learn 4 numbers from: .* with images"):
        export_backbone(config, tmp_path / "none", fields={"name": "none"}, head=HeadConfig(4))


def test_an_image_tower_becomes_a_bundle_at_any_size(tmp_path: Path) -> None:
    """Of the architecture, with fewer and narrower layers; position embeddings follow the size."""
    fields = {"name": "vit_small_patch14_dinov2", "arguments": TINY_TOWER, **PLAIN}
    config = BackboneConfig.model_validate(fields)
    bundle = export_backbone(config, tmp_path / "tower", fields={"name": "tower"}, input_size=56)
    assert (bundle.dim, bundle.manifest.preprocessing.input_size) == (32, 56)
