"""Validation: how well a network in training ranks held-out classes (torch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vicinal.calibration.arrays import Bytes, FloatArray, HalfFloats
from vicinal.models.bundle import Preprocessing
from vicinal.training.datasets import LabelledImages
from vicinal.training.datasets.stored_pixels import StoredPixels
from vicinal.training.evaluation import retrieval_metrics
from vicinal.training.evaluation.metrics import Distance

# Points between first and trained weights that are tried.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Points whose figure is lower than the best by less are as good: the held-out classes cannot tell them apart.
_AS_GOOD = 0.01


def validate(
    images: LabelledImages, embed: Callable[[], FloatArray], distance: Distance = "cosine"
) -> tuple[float, float]:
    """Hit rate at rank 1 and MAP@R of held-out images among themselves; NaN where no two are of a class."""
    if len(np.unique(images.labels)) == len(images.labels):
        return math.nan, math.nan
    metrics = retrieval_metrics(embed(), images.class_ids, ks=(1,), distance=distance)
    return metrics.hit_rate[1], metrics.map_at_r


def best_between(
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
    measure: Callable[[dict[str, Tensor]], float],
) -> tuple[float, float]:
    """Share of the way, of `SHARES`, to the best point on the line from first weights to trained ones.

    Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022: such a point keeps much of what the
    first weights knew of other images. Of points as good as the best the nearest to the first weights is
    taken, which tells strangers apart better, and the first weights themselves only where they are best.
    Gives the share and its figure.
    """
    first, *others = (measure(between(start, end, share)) for share in SHARES)
    best = max(others)
    if first > best:
        return SHARES[0], first
    points = zip(SHARES[1:], others, strict=True)
    return next((share, one) for share, one in points if not one < best - _AS_GOOD)


def between(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Weights that lie a share of the way from `start` to `end`; counts are those of the end."""
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
    maps: HalfFloats | None = None,
    *,
    batch_size: int = 256,
) -> FloatArray:
    """Embed stored images, (n, H, W, 3), as serving would, or by the maps, (n, ...), of a front.

    Images are fitted and standardized, without augmentation. Gives (n, d) float32, not normalized.
    """

    def prepared(part: slice) -> Tensor:
        if maps is not None:
            return torch.from_numpy(maps[part].astype(np.float32))
        tensors = [preprocessing.to_tensor(Image.fromarray(image)) for image in pixels[part]]
        return torch.from_numpy(np.stack(tensors)).contiguous(memory_format=torch.channels_last)

    n, size = (len(pixels), batch_size) if maps is None else (len(maps), 64)
    network.eval()
    device = next(network.parameters()).device
    with torch.inference_mode():
        parts = [
            network(prepared(slice(start, start + size)).to(device)).float().cpu()
            for start in range(0, n, size)
        ]
    embeddings: FloatArray = torch.cat(parts).numpy()
    return embeddings
