"""Losses that pytorch-metric-learning keeps, under this project's signature and names."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt
from pytorch_metric_learning import distances, losses, miners
from torch import Tensor, nn

from vicinal.training.losses.base import MetricLoss


class PublishedLoss(MetricLoss):
    """A loss of pytorch-metric-learning, which may wait for the accelerator."""

    def __init__(self, published: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.published = published
        self.miner = miner

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Loss over the mined pairs."""
        pairs = None if self.miner is None else self.miner(embeddings, labels)
        loss: Tensor = self.published(embeddings, labels, pairs)
        return loss


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


# Distances are L2 between normalized embeddings, labels of proxies 0 to n_classes - 1.


def contrastive(pos_margin: float = 0.0, neg_margin: float = 1.0) -> PublishedLoss:
    """Contrastive loss (Hadsell et al., CVPR 2006); margins are distances."""
    return PublishedLoss(losses.ContrastiveLoss(pos_margin=pos_margin, neg_margin=neg_margin))


def cosine_contrastive(pos_margin: float = 0.75, neg_margin: float = 0.6) -> PublishedLoss:
    """Contrastive loss on cosines: each of its terms is averaged over the pairs that violate its margin.

    "Supervised Metric Learning to Rank for Retrieval via Contextual Similarity Optimization", ICML 2023,
    eq. 29; positive pairs have to reach `pos_margin`, negative ones to stay below `neg_margin`.
    """
    cosine = distances.CosineSimilarity()
    return PublishedLoss(losses.ContrastiveLoss(pos_margin, neg_margin, distance=cosine))


def triplet(margin: float = 0.05, swap: bool = False, smooth_loss: bool = False) -> PublishedLoss:
    """Triplet margin loss over all triplets of the batch (Schroff et al., "FaceNet", CVPR 2015)."""
    return PublishedLoss(losses.TripletMarginLoss(margin=margin, swap=swap, smooth_loss=smooth_loss))


def circle(margin: float = 0.4, gamma: float = 80.0) -> PublishedLoss:
    """Circle loss (Sun et al., CVPR 2020); the margin relaxes the cosines that are aimed at."""
    return PublishedLoss(losses.CircleLoss(m=margin, gamma=gamma))


def margin(margin: float = 0.2, beta: float = 1.2, nu: float = 0.0) -> PublishedLoss:
    """Margin loss with one fixed boundary beta (Wu et al., "Sampling Matters", ICCV 2017)."""
    return PublishedLoss(losses.MarginLoss(margin=margin, nu=nu, beta=beta))


def fast_ap(bins: PositiveInt = 10) -> PublishedLoss:
    """FastAP, average precision by a histogram of distances (Cakir et al., CVPR 2019)."""
    return PublishedLoss(losses.FastAPLoss(num_bins=bins))


def proxy_anchor(n_classes: int, dim: int, *, margin: float = 0.1, alpha: float = 32.0) -> PublishedLoss:
    """Proxy-anchor loss, one learned proxy a class (Kim et al., CVPR 2020); the margin is a cosine."""
    return PublishedLoss(losses.ProxyAnchorLoss(n_classes, dim, margin=margin, alpha=alpha))


def proxy_nca(n_classes: int, dim: int, *, softmax_scale: PositiveFloat = 1.0) -> PublishedLoss:
    """Proxy-NCA loss, one learned proxy a class (Movshovitz-Attias et al., ICCV 2017)."""
    return PublishedLoss(losses.ProxyNCALoss(n_classes, dim, softmax_scale=softmax_scale))


def arcface(n_classes: int, dim: int, *, margin: float = 28.6, scale: float = 64.0) -> PublishedLoss:
    """Additive angular margin loss (Deng et al., "ArcFace", CVPR 2019); the margin is in degrees."""
    return PublishedLoss(losses.ArcFaceLoss(n_classes, dim, margin=margin, scale=scale))


def cosface(n_classes: int, dim: int, *, margin: float = 0.35, scale: float = 64.0) -> PublishedLoss:
    """Large margin cosine loss (Wang et al., "CosFace", CVPR 2018); the margin is a cosine."""
    return PublishedLoss(losses.CosFaceLoss(n_classes, dim, margin=margin, scale=scale))


def normalized_softmax(n_classes: int, dim: int, *, temperature: PositiveFloat = 0.05) -> PublishedLoss:
    """Softmax over normalized class weights (Zhai and Wu, BMVC 2019)."""
    return PublishedLoss(losses.NormalizedSoftmaxLoss(n_classes, dim, temperature=temperature))
