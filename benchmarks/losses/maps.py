"""Maps of the first stages of a pretrained network: each view of each image made once, for all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.losses.features import FeatureParts, Features, cached
from vicinal.models.bundle import Preprocessing
from vicinal.training.augmentation import AugmentedImages, stored_size
from vicinal.training.backbones.backbone import BackboneConfig, build_network
from vicinal.training.config import AugmentationConfig
from vicinal.training.datasets import load_datasets
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.validation import embed_images

__all__ = ["CutNetwork", "load_maps"]

_SIDE = 128
_FROZEN_STAGES = 5
_VIEWS = 3
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
_SEARCHED = ("gallery", "query", "absent")
_HALF = (0.5, 0.5, 0.5)
_PREPROCESSING = Preprocessing(input_size=_SIDE, fit="squash", mean=_HALF, std=_HALF)
# Those of the recipe of the bundle that ships.
_AUGMENTATION = AugmentationConfig(smallest_crop=0.4, degrees=15.0, flip=True, erase=0.0)


class CutNetwork(nn.Module):
    """The last two stages and the head, with their first weights, from maps to embeddings; `front` gives the
    maps. The head is not centered yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = build_network(_BACKBONE)
        trunk = self.network.trunk
        stages = list(trunk.blocks)
        self.front = nn.Sequential(trunk.conv_stem, trunk.bn1, *stages[:_FROZEN_STAGES])
        self.back = nn.Sequential(*stages[_FROZEN_STAGES:], trunk.conv_head, trunk.bn2, trunk.global_pool)

    def forward(self, maps: Tensor) -> Tensor:
        """Embed maps, to (b, 256), not normalized."""
        embeddings: Tensor = self.network.head(self.back(maps))
        return embeddings

    def train(self, mode: bool = True) -> Self:
        """Training mode of what learns."""
        self.training = mode
        self.network.train(mode)
        return self


def load_maps(root: Path, folder: Path) -> FeatureParts:
    """Maps of a protocol folder, (n, v, C, H, W) float16, computed where they are missing.

    Args:
        root: Folder with `protocol.csv` and its archives.
        folder: Where maps are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def part(split: str, roles: tuple[str, ...], n_views: int = 1) -> Features:
        own = ProtocolConfig(kind="protocol", root=root, split=split, roles=roles)
        path = folder / f"{root.name}-{split}-{_SIDE}.npz"
        return cached(path, own, lambda: _maps(own, n_views), np.float16)

    return FeatureParts(
        part("train", ("train",), _VIEWS), part("calibration", _SEARCHED), part("test", _SEARCHED)
    )


def _maps(part: ProtocolConfig, n_views: int) -> npt.NDArray[np.float16]:
    """(n, v, C, H, W): each image as it is, then changed at random."""
    front = CutNetwork().front.eval()
    plain = embed_images(front, load_datasets([part], _PREPROCESSING.resize).pixels, _PREPROCESSING)
    views = np.empty((len(plain), n_views, *plain.shape[1:]), np.float16)
    views[:, 0] = plain
    if n_views > 1:
        images = load_datasets([part], stored_size(_PREPROCESSING, _AUGMENTATION)[0])
        augmented = AugmentedImages(images, _PREPROCESSING, _AUGMENTATION, seed=0)
        with torch.inference_mode():
            for position in range(len(plain)):
                changed = torch.stack([augmented[view, 0, position][0] for view in range(1, n_views)])
                views[position, 1:] = front(changed).numpy()
    return views
