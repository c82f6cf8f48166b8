"""Losses of metric learning; every loss is `loss(embeddings, labels) -> scalar` (torch)."""

from vicinal.training.losses.balanced_contrastive import BalancedContrastiveLoss, GroupBatch, RandomPairs
from vicinal.training.losses.contextual import ContextualLoss, contextual_similarity
from vicinal.training.losses.cross_batch_memory import CrossBatchMemory
from vicinal.training.losses.published import MultiSimilarityLoss
from vicinal.training.losses.recall_at_k import RecallAtKLoss
from vicinal.training.losses.registry import Loss, available_losses, build_loss
from vicinal.training.losses.smooth_ap import SmoothAPLoss
from vicinal.training.losses.threshold_consistent_margin import ThresholdConsistentMargin

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
