"""SiMix: virtual examples between two items of a class, of which only similarities are made."""

from __future__ import annotations

import torch
from torch import Tensor

from vicinal.models.losses.soft_ranks import Classmates, VirtualExamples, classmates

__all__ = ["mix_positives", "with_virtual"]


def mix_positives(mates: Classmates, dtype: torch.dtype) -> VirtualExamples:
    """One mixture of every positive pair, with a share drawn from U(0, 1).

    "Recall@k Surrogate Loss with Large Batches and Similarity Mixup", CVPR 2022, eq. 9
    and 10.

    Args:
        mates: Classmates of the n items of a batch.
        dtype: Type of the shares.

    Returns:
        n * floor(m / 2) examples, m the size of the largest class; padding included.
    """
    n_items, width = mates.indices.shape
    steps = torch.arange(1, (width + 1) // 2 + 1, device=mates.indices.device)
    twice, sizes = 2 * steps, mates.sizes[:, None]
    # In a circle of even size, both ends of a diameter see each other at the same step: one of them counts.
    once = (twice < sizes) | ((twice == sizes) & (mates.positions[:, None] < steps))
    first = torch.arange(n_items, device=steps.device)[:, None].expand_as(once)
    return VirtualExamples(
        first.reshape(-1),
        mates.indices[:, : len(steps)].reshape(-1),
        torch.rand(once.numel(), dtype=dtype, device=steps.device),
        once.reshape(-1),
    )


def with_virtual(mates: Classmates, virtual: VirtualExamples) -> Classmates:
    """Classmates of the n items and the v virtual examples; padding has none and is none's."""
    n_items, width = mates.indices.shape
    padding = n_items + torch.arange(len(virtual.exist), device=virtual.exist.device)
    own: Tensor = torch.where(virtual.exist, mates.class_ids[virtual.first], padding)
    most = width + 1
    return classmates(torch.cat([mates.class_ids, own]), most * (most + 1) // 2)
