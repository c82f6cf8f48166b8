"""Threshold-consistent margin: hard pairs of all classes are drawn to the same two cosines."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vicinal.models.errors import ConfigError
from vicinal.training.losses.base import Memory, MetricLoss, mean_where, normalized


class ThresholdConsistentMargin(MetricLoss):
    """Regularizer that gives all classes one range of thresholds; used alone or added to a loss.

    "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning", ICLR 2024, eq. 5. Each term is
    the mean over its hard pairs, 0 where no pair is hard. Margins are chosen on held-out classes: the range
    of thresholds that a model is judged over says nothing of them (section 4, A.3.1).

    Args:
        pos_margin: Positive pairs with a cosine up to this are hard.
        neg_margin: Negative pairs with a cosine from this on are hard.
        pos_weight: Weight of the hard positive pairs.
        neg_weight: Weight of the hard negative pairs.
        pairs: `all`, or `positive` for the positive half alone.
    """

    def __init__(
        self,
        pos_margin: float = 0.9,
        neg_margin: float = 0.5,
        pos_weight: float = 1.0,
        neg_weight: float = 1.0,
        pairs: Literal["all", "positive"] = "all",
    ) -> None:
        super().__init__()
        if not (-1.0 <= pos_margin <= 1.0 and -1.0 <= neg_margin <= 1.0):
            raise ConfigError(f"margins are cosines in [-1, 1], got {pos_margin} and {neg_margin}")
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin
        self.pos_weight = pos_weight
        self.neg_weight = neg_weight if pairs == "all" else 0.0

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Over all ordered pairs of the batch."""
        rows = normalized(embeddings)
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        return self._of_pairs(rows @ rows.T, labels[:, None] == labels, itself)

    def compute_against(self, embeddings: Tensor, labels: Tensor, memory: Memory) -> Tensor:
        """Over all pairs of an item of the batch and an item of the memory that is not its own copy."""
        stored = normalized(memory.embeddings.to(embeddings.dtype))
        itself = torch.arange(len(stored), device=labels.device) == memory.own[:, None]
        return self._of_pairs(normalized(embeddings) @ stored.T, labels[:, None] == memory.labels, itself)

    def _of_pairs(self, similarities: Tensor, same: Tensor, itself: Tensor) -> Tensor:
        hard_positive = same & ~itself & (similarities <= self.pos_margin)
        hard_negative = ~same & (similarities >= self.neg_margin)
        missing = mean_where(self.pos_margin - similarities, hard_positive)
        excess = mean_where(similarities - self.neg_margin, hard_negative)
        return self.pos_weight * missing + self.neg_weight * excess
