"""The image sets of the studies: decoded once at a small size, and augmented a batch at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as functional
from torch import Tensor

from vicinal.models.bundle import Preprocessing
from vicinal.training.datasets import LabelledImages, load_datasets
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

__all__ = ["IMAGE_SIZE", "Parts", "augment", "load_parts", "standardize"]

# Small images and many of them teach more in a minute than large ones.
IMAGE_SIZE = 32
_VALIDATION_SHARE = 0.12
_VALIDATION_SEED = 0


@dataclass(frozen=True)
class Parts:
    """One image set, split by class: no class is in two parts.

    Attributes:
        train: Images that a run learns from.
        validation: Held-out classes of the training part, on which settings are chosen.
        calibration: Gallery, query and absent images on which thresholds are chosen.
        test: The same, on which results are reported once.
    """

    train: LabelledImages
    validation: LabelledImages
    calibration: LabelledImages
    test: LabelledImages

    def named(self) -> dict[str, LabelledImages]:
        """The parts by name."""
        return {name: getattr(self, name) for name in ("train", "validation", "calibration", "test")}


def load_parts(root: Path, work: Path) -> Parts:
    """Read a protocol folder, decoding each image once and for all runs.

    Args:
        root: Folder with `protocol.csv` and its archives.
        work: Folder that keeps the decoded arrays.
    """
    training = _cached(root, "train", ("train",), work)
    own, held = training.split_classes(_VALIDATION_SHARE, _VALIDATION_SEED)
    roles = ("gallery", "query", "absent")
    return Parts(own, held, *(_cached(root, split, roles, work) for split in ("calibration", "test")))


def _cached(root: Path, split: str, roles: tuple[str, ...], work: Path) -> LabelledImages:
    path = work / "images" / f"{root.name}-{split}-{IMAGE_SIZE}.npz"
    if not path.exists():
        config = ProtocolConfig(kind="protocol", root=root, split=split, roles=roles)
        fit = Preprocessing(input_size=IMAGE_SIZE, fit="squash").resize
        images = load_datasets([config], fit)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, pixels=images.pixels, labels=images.labels, roles=images.roles)
        partial.rename(path)
    stored = np.load(path)
    return LabelledImages(stored["pixels"], stored["labels"], stored["roles"])


def standardize(pixels: npt.NDArray[np.uint8]) -> Tensor:
    """(n, S, S, 3) uint8 to (n, 3, S, S) float32 around 0, channels last in memory."""
    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return tensor.float().sub_(127.5).div_(64.0)


def augment(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, scale, shift and slant each image at random, and vary brightness, contrast and color mildly.

    Args:
        batch: (n, 3, S, S) standardized images.
        generator: Source of the randomness.
    """
    n = len(batch)

    def draw(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=generator)

    angle = draw(-math.pi / 15, math.pi / 15)
    scale, stretch = draw(0.75, 1.1), draw(0.87, 1.15)
    slant = draw(-0.15, 0.15)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    theta = torch.empty(n, 2, 3)
    theta[:, 0, 0], theta[:, 0, 1] = cos * stretch, -sin + slant
    theta[:, 1, 0], theta[:, 1, 1] = sin, cos / stretch
    theta[:, :, 2] = draw(-0.12, 0.12, 2)
    grid = functional.affine_grid(theta, list(batch.shape), align_corners=False)
    moved = functional.grid_sample(batch, grid, padding_mode="border", align_corners=False)
    gain = draw(0.8, 1.2, 1, 1, 1) * draw(0.95, 1.05, 3, 1, 1)
    shift = draw(-0.2, 0.2, 1, 1, 1)
    return (moved * gain + shift).contiguous(memory_format=torch.channels_last)
