"""Cross-batch memory: pairs with the embeddings of earlier batches; sums of losses, which may share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytorch_metric_learning import losses
from torch import Tensor, nn

from vicinal.models.errors import ConfigError
from vicinal.training.losses.base import Memory, MetricLoss
from vicinal.training.losses.published import PublishedLoss


class CrossBatchMemory(MetricLoss):
    """A pair loss of the batch against the latest embeddings, those of the batch among them.

    Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020. The memory holds embeddings without a
    graph, so a pair moves its item of the batch alone. It is part of the state that is saved, so that
    training can be resumed with it.

    Args:
        loss: A loss of pairs or triplets of pytorch-metric-learning.
        dim: Length of the embeddings.
        memory_size: Embeddings kept, at least those of one batch.
    """

    def __init__(self, loss: PublishedLoss, dim: int, memory_size: int = 1024) -> None:
        super().__init__()
        supported = losses.CrossBatchMemory.supported_losses()
        if type(loss.published).__name__ not in supported:
            raise ConfigError(
                f"a cross-batch memory works with losses of pairs and triplets, "
                f"not with {type(loss.published).__name__}"
            )
        self.memory_size = memory_size
        self._memory = losses.CrossBatchMemory(
            loss.published, embedding_size=dim, memory_size=memory_size, miner=loss.miner
        )

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Add the batch to the memory, then compare it with all of it but its own copies."""
        if len(embeddings) > self.memory_size:
            raise ConfigError(
                f"memory_size {self.memory_size} holds less than a batch of {len(embeddings)}: "
                f"use {len(embeddings)} or more"
            )
        loss: Tensor = self._memory(embeddings, labels)
        return loss

    @property
    def memory(self) -> Memory:
        """Embeddings that the latest batch was compared with."""
        filled = self.memory_size if self._memory.has_been_filled else self._memory.queue_idx
        return Memory(
            self._memory.embedding_memory[:filled],
            self._memory.label_memory[:filled],
            self._memory.curr_batch_idx,
        )

    def get_extra_state(self) -> dict[str, Any]:
        """Place of the next batch; embeddings and labels are buffers, which are saved anyway."""
        return {"next": self._memory.queue_idx, "is_full": self._memory.has_been_filled}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on where another memory of the same size was."""
        self._memory.queue_idx = state["next"]
        self._memory.has_been_filled = state["is_full"]


class WeightedSum(MetricLoss):
    """A base loss plus weighted additions; with a cross-batch memory as base, they see its memory too."""

    def __init__(self, base: MetricLoss, additions: Sequence[tuple[float, MetricLoss]]) -> None:
        super().__init__()
        self.base, self.distance = base, base.distance
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
