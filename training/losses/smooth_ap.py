"""Smooth average precision."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from vicinal.training.losses.base import MetricLoss, cosine_similarities, mean_where
from vicinal.training.losses.recall_at_k import mix_positives, with_virtual
from vicinal.training.losses.soft_ranks import (
    classmates,
    largest_class,
    similarities_to_mates,
    soft_ranks,
    within_limit,
)


# The one of pytorch-metric-learning 2.9 takes two classes for one, unless the batch is sorted and has as many
# classes as images a class.
class SmoothAPLoss(MetricLoss):
    """1 - average precision with smooth ranks, averaged over the queries that have positives.

    Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV 2020.
    Every item of the batch is a query and is not in the database of its own ranks. Classes may differ in size
    and stand in any order; the cost is n^2 times the positives a query.

    Args:
        temperature: Width of the sigmoids, in units of similarity.
        simix: Add a virtual example between the two items of every positive pair, as `RecallAtKLoss` does.
        max_per_class: Largest number of items of one class in a batch. Without it the labels are counted on
            the host, which waits for them when they are on an accelerator.
    """

    def __init__(
        self, temperature: PositiveFloat = 0.01, simix: bool = False, *, max_per_class: int | None = None
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.simix = simix
        self.max_per_class = max_per_class

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Mean over the queries, virtual ones included, that have a positive."""
        most = largest_class(labels, self.max_per_class)
        batch = classmates(labels, most)
        virtual = mix_positives(batch, embeddings.dtype) if self.simix else None
        mates = with_virtual(batch, virtual) if virtual else batch
        similarities = cosine_similarities(embeddings)
        among_all = 1.0 + soft_ranks(similarities, mates, self.temperature, virtual)
        positives = similarities_to_mates(similarities, mates, virtual)
        among_positives = 1.0 + self._ranks_among(positives, mates.exist)
        precisions = torch.where(mates.exist, among_positives / among_all, 0.0)
        n_positives = mates.exist.sum(dim=1)
        average_precision = precisions.sum(dim=1) / n_positives.clamp_min(1)
        return within_limit(mean_where(1.0 - average_precision, n_positives > 0), batch, most)

    def _ranks_among(self, positives: Tensor, exist: Tensor) -> Tensor:
        others = exist[:, None, :] & ~torch.eye(positives.shape[1], dtype=torch.bool, device=exist.device)
        before = torch.sigmoid((positives[:, None, :] - positives[:, :, None]) / self.temperature)
        return torch.where(others, before, 0.0).sum(dim=2)
