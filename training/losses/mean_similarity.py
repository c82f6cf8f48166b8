"""Mean similarity: a regularizer that keeps all embeddings from drawing together or apart."""

from __future__ import annotations

from torch import Tensor

from vicinal.training.losses.base import MetricLoss, cosine_similarities


class MeanSimilarity(MetricLoss):
    """`(target - mean cosine)^2` over all ordered pairs of a batch, each item with itself too.

    The regularizer of "Supervised Metric Learning to Rank for Retrieval via Contextual Similarity
    Optimization", ICML 2023, for any loss that it is added to; labels do not matter.

    Args:
        target_similarity: Mean cosine that is aimed at.
    """

    def __init__(self, target_similarity: float = 0.3) -> None:
        super().__init__()
        self.target_similarity = target_similarity

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Mean over the pairs of the batch, whatever its classes."""
        return (self.target_similarity - cosine_similarities(embeddings).mean()).square()
