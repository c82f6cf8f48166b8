"""Maps of the first stages of a pretrained network: each view of each image made once, for all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.losses.features import FeatureParts, Features
from vicinal.models.bundle import Preprocessing
from vicinal.training.backbones.backbone import BackboneConfig, build_network
from vicinal.training.backbones.front_maps import make_maps
from vicinal.training.backbones.frozen_front import CutNetwork
from vicinal.training.checkpoint import identity_of
from vicinal.training.config import AugmentationConfig, TrainingConfig
from vicinal.training.datasets import list_images, load_labels
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.observer import TrainingObserver

__all__ = ["cut_network", "load_maps"]

_SIDE = 128
_FROZEN_STAGES = 5
_BACKBONE = BackboneConfig(
    name="tf_efficientnet_lite0",
    weights="package",
    pooling="native",
    dim=256,
    head="classifier",
    layer_norm=False,
    freeze_batch_norm=True,
    frozen_stages=_FROZEN_STAGES,
)
_HALF = (0.5, 0.5, 0.5)
# Those of the recipe of the bundle that ships, but for the number of views.
_AUGMENTATION = AugmentationConfig(smallest_crop=0.4, degrees=15.0, flip=True, erase=0.0, views=3)


def cut_network() -> CutNetwork:
    """The network with its first weights, cut before the last two stages; its head is not centered yet."""
    return CutNetwork(build_network(_BACKBONE), _FROZEN_STAGES, _SIDE)


def load_maps(root: Path, folder: Path) -> FeatureParts:
    """Maps of a protocol folder, (n, v, C, H, W) float16, computed where they are missing.

    Args:
        root: Folder with `protocol.csv` and its archives.
        folder: Where maps are kept.
    """
    config = _config(root)
    images = load_labels((*config.datasets, *config.validation_datasets))
    n_training, n_calibration, _ = (
        len(list_images(one)) for one in (*config.datasets, *config.validation_datasets)
    )
    place = np.arange(len(images.labels))
    own = folder / f"{root.name}-{_SIDE}"
    own.mkdir(parents=True, exist_ok=True)
    training, others = images.subset(place < n_training), images.subset(place >= n_training)
    maps = make_maps(
        own,
        cut_network(),
        training,
        others,
        config,
        identity=identity_of(config, images),
        observer=TrainingObserver(),
    )
    views = maps.rows[: n_training * maps.views].reshape(n_training, maps.views, *maps.rows.shape[1:])
    rest = Features(maps.held_out[:, None], others.labels, others.roles)
    is_calibration = np.arange(len(others.labels)) < n_calibration
    return FeatureParts(
        Features(views, training.labels, training.roles),
        rest.subset(is_calibration),
        rest.subset(~is_calibration),
    )


def _config(root: Path) -> TrainingConfig:
    def part(split: str, *roles: str) -> dict[str, Any]:
        return ProtocolConfig(kind="protocol", root=root, split=split, roles=roles).model_dump()

    searched = ("gallery", "query", "absent")
    return TrainingConfig.model_validate(
        {
            "name": f"{root.name}-maps",
            "backbone": _BACKBONE,
            "preprocessing": Preprocessing(input_size=_SIDE, fit="squash", mean=_HALF, std=_HALF),
            "augmentation": _AUGMENTATION,
            "datasets": [part("train", "train")],
            "validation_datasets": [part("calibration", *searched), part("test", *searched)],
        }
    )
