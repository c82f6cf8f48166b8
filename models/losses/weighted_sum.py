"""A loss with others added to it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from vicinal.models.losses.base import MetricLoss
from vicinal.models.losses.cross_batch_memory import CrossBatchMemory

__all__ = ["WeightedSum"]


class WeightedSum(MetricLoss):
    """A base loss plus weighted additions; with a cross-batch memory as base, they see its memory too.

    Args:
        base: The loss.
        additions: Weights and losses.
    """

    def __init__(self, base: MetricLoss, additions: Sequence[tuple[float, MetricLoss]]) -> None:
        super().__init__()
        self.base = base
        self.additions = tuple(additions)
        # Proxies of an added loss are parameters too.
        self._modules_added = nn.ModuleList([loss for _, loss in additions])

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The base first: it puts the batch into the memory."""
        total: Tensor = self.base(embeddings, labels)
        for weight, loss in self.additions:
            if isinstance(self.base, CrossBatchMemory):
                total = total + weight * loss.against(embeddings, labels, self.base.memory)
            else:
                total = total + weight * loss(embeddings, labels)
        return total
