"""Validation: how well a network in training ranks held-out classes (torch)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from vicinal.models.backbone import EmbeddingNetwork
from vicinal.models.datasets import LabelledImages
from vicinal.models.evaluation import retrieval_metrics
from vicinal.models.preprocessing import Preprocessing

__all__ = ["embed_images", "validate"]


def validate(
    network: EmbeddingNetwork, images: LabelledImages, preprocessing: Preprocessing
) -> tuple[float, float]:
    """Hit rate at rank 1 and MAP@R of held-out images among themselves; NaN where no two are of a class."""
    if len(np.unique(images.labels)) == len(images.labels):
        return math.nan, math.nan
    embeddings = embed_images(network, images.pixels, preprocessing)
    metrics = retrieval_metrics(embeddings, images.class_ids, ks=(1,))
    return metrics.hit_rate[1], metrics.map_at_r


def embed_images(
    network: EmbeddingNetwork,
    pixels: npt.NDArray[np.uint8],
    preprocessing: Preprocessing,
    *,
    batch_size: int = 256,
) -> npt.NDArray[np.float32]:
    """Embed stored images as serving would: fitted, standardized, without augmentation.

    Args:
        network: The network; it is set to evaluation mode.
        pixels: (n, H, W, 3) uint8 RGB.
        preprocessing: Fit and standardization.
        batch_size: Images a forward pass.

    Returns:
        (n, d) float32, not normalized.
    """
    network.eval()
    device = next(network.parameters()).device
    parts = []
    with torch.inference_mode():
        for start in range(0, len(pixels), batch_size):
            tensors = [
                preprocessing.to_tensor(Image.fromarray(image))
                for image in pixels[start : start + batch_size]
            ]
            batch = torch.from_numpy(np.stack(tensors)).to(device, memory_format=torch.channels_last)
            parts.append(network(batch).float().cpu().numpy())
    return np.concatenate(parts)
