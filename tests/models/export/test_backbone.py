"""Export of backbones: their weights, a head learnt without training, their preprocessing."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("onnxscript")

from vicinal.models.backbone import BackboneConfig  # noqa: E402
from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.models.export.backbone import export_backbone  # noqa: E402


def test_backbone_without_training_becomes_a_bundle(tmp_path: Path) -> None:
    """Preprocessing comes from timm, the embedding is the pooled feature."""
    arguments = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}
    config = BackboneConfig(name="resnet18", arguments=arguments, dim=None, layer_norm=False)
    bundle = export_backbone(config, tmp_path / "plain", name="plain", licence="Apache-2.0")
    assert bundle.dim == 16
    assert bundle.manifest.preprocessing.input_size == 224
    assert bundle.manifest.training["weights"] == "random"
    assert bundle.manifest.licence == "Apache-2.0"


def test_unknown_backbone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="resnet1000"):
        export_backbone(BackboneConfig(name="resnet1000"), tmp_path / "none", name="none")
    assert not (tmp_path / "none").exists()
