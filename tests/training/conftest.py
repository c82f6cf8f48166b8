"""Fixtures of the training side: a very small network and a folder of labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from vicinal.training.backbones.backbone import BackboneConfig
    from vicinal.training.config import TrainingConfig

TINY_NETWORK = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}


def write_class_folders(root: Path, *, n_classes: int, per_class: int, side: int = 40) -> Path:
    """One subfolder a class; a class is a color with noise, so that a network can learn it."""
    rng = np.random.default_rng(0)
    for label, color in enumerate(rng.integers(40, 215, (n_classes, 3))):
        folder = root / f"class{label:02d}"
        folder.mkdir(parents=True)
        for view in range(per_class):
            noise = rng.integers(-20, 20, (side, side, 3))
            pixels = np.clip(color + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{view}.png")
    return root


@pytest.fixture(scope="session")
def make_class_folders() -> Callable[..., Path]:
    return write_class_folders


@pytest.fixture(scope="session")
def tiny_backbone() -> BackboneConfig:
    pytest.importorskip("timm")
    from vicinal.training.backbones.backbone import BackboneConfig

    return BackboneConfig(name="resnet18", arguments=TINY_NETWORK, stem_pool=False, dim=8)


@pytest.fixture(scope="session")
def color_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 classes of 5 images."""
    return write_class_folders(tmp_path_factory.mktemp("sets") / "colors", n_classes=12, per_class=5)


@pytest.fixture(scope="session")
def make_training_config(tiny_backbone: BackboneConfig, color_folder: Path) -> Callable[..., TrainingConfig]:
    """Configuration of a run of a few seconds; keyword arguments replace its fields."""
    from vicinal.training.config import TrainingConfig

    def make(**changes: object) -> TrainingConfig:
        fields: dict[str, object] = {
            "name": "tiny",
            "backbone": tiny_backbone,
            "preprocessing": {"input_size": 32, "fit": "squash"},
            "datasets": [{"kind": "folder", "root": color_folder}],
            "sampler": {"batch_size": 16, "per_class": 4},
            "optimizer": {"steps": 6, "warmup_steps": 1},
            "validation_share": 0.25,
            "validate_every": 3,
            "precision": "float32",
        }
        return TrainingConfig.model_validate({**fields, **changes})

    return make


@pytest.fixture(scope="module")
def without_picture() -> Iterator[None]:
    """Draws no curves: the picture takes longer than a run of a few steps, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.training.log.Figure.savefig", lambda *_, **__: None)
        yield
