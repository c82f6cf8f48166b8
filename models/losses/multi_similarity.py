"""Multi-similarity loss."""

from __future__ import annotations

from pytorch_metric_learning import losses, miners

from vicinal.models.losses.published import PublishedLoss

__all__ = ["MultiSimilarityLoss"]


class MultiSimilarityLoss(PublishedLoss):
    """Multi-similarity loss with its pair mining.

    Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR 2019.

    Args:
        alpha: Weight of positive pairs.
        beta: Weight of negative pairs.
        base: Similarity around which pairs are weighted.
        mining_margin: Slack of the mining of informative pairs; None uses every pair.
    """

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, mining_margin: float | None = 0.1
    ) -> None:
        miner = None if mining_margin is None else miners.MultiSimilarityMiner(epsilon=mining_margin)
        super().__init__(losses.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), miner)
