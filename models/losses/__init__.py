"""Losses of metric learning; every loss is `loss(embeddings, labels) -> scalar` (torch)."""

from models.losses.balanced_contrastive import BalancedContrastiveLoss, GroupBatch, RandomPairs
from models.losses.contextual import ContextualLoss, contextual_similarity
from models.losses.cross_batch_memory import CrossBatchMemory
from models.losses.multi_similarity import MultiSimilarityLoss
from models.losses.recall_at_k import RecallAtKLoss
from models.losses.registry import Loss, available_losses, build_loss
from models.losses.smooth_ap import SmoothAPLoss
from models.losses.threshold_consistent_margin import ThresholdConsistentMargin

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
