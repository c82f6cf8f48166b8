"""Losses of metric learning; every loss is `loss(embeddings, labels) -> scalar` (torch)."""

from vicinal.models.losses.balanced_contrastive import BalancedContrastiveLoss, GroupBatch, RandomPairs
from vicinal.models.losses.contextual import ContextualLoss, contextual_similarity
from vicinal.models.losses.cross_batch_memory import CrossBatchMemory
from vicinal.models.losses.published import MultiSimilarityLoss
from vicinal.models.losses.recall_at_k import RecallAtKLoss
from vicinal.models.losses.registry import Loss, available_losses, build_loss
from vicinal.models.losses.smooth_ap import SmoothAPLoss
from vicinal.models.losses.threshold_consistent_margin import ThresholdConsistentMargin

__all__ = [
    "BalancedContrastiveLoss",
    "ContextualLoss",
    "CrossBatchMemory",
    "GroupBatch",
    "Loss",
    "MultiSimilarityLoss",
    "RandomPairs",
    "RecallAtKLoss",
    "SmoothAPLoss",
    "ThresholdConsistentMargin",
    "available_losses",
    "build_loss",
    "contextual_similarity",
]
