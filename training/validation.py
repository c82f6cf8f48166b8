"""Validation: how well a network in training ranks held-out classes (torch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vicinal.calibration.arrays import Bytes, FloatArray
from vicinal.models.bundle import Preprocessing
from vicinal.training.datasets import LabelledImages
from vicinal.training.datasets.stored_pixels import StoredPixels
from vicinal.training.evaluation import retrieval_metrics
from vicinal.training.evaluation.metrics import Distance


def validate(
    images: LabelledImages, embed: Callable[[], FloatArray], distance: Distance = "cosine"
) -> tuple[float, float]:
    """Hit rate at rank 1 and MAP@R of held-out images among themselves; NaN where no two are of a class."""
    if len(np.unique(images.labels)) == len(images.labels):
        return math.nan, math.nan
    metrics = retrieval_metrics(embed(), images.class_ids, ks=(1,), distance=distance)
    return metrics.hit_rate[1], metrics.map_at_r


def between(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Weights that lie a share of the way from `start` to `end`; counts are those of the end.

    Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022: such a point keeps much of what the
    first weights knew of other images.
    """
    return {
        name: torch.lerp(start[name], value.to(start[name].device), share)
        if value.is_floating_point()
        else value
        for name, value in end.items()
    }


def embed_images(
    network: nn.Module,
    pixels: Bytes | StoredPixels,
    preprocessing: Preprocessing,
    *,
    batch_size: int = 256,
) -> FloatArray:
    """Embed stored images, (n, H, W, 3), as serving would.

    Images are fitted and standardized, without augmentation. Gives (n, d) float32, not normalized.
    """

    def prepared(part: slice) -> Tensor:
        tensors = [preprocessing.to_tensor(Image.fromarray(image)) for image in pixels[part]]
        return torch.from_numpy(np.stack(tensors)).contiguous(memory_format=torch.channels_last)

    network.eval()
    device = next(network.parameters()).device
    with torch.inference_mode():
        parts = [
            network(prepared(slice(start, start + batch_size)).to(device)).float().cpu()
            for start in range(0, len(pixels), batch_size)
        ]
    embeddings: FloatArray = torch.cat(parts).numpy()
    return embeddings
