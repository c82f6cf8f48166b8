"""Losses that pytorch-metric-learning keeps, under this project's signature and names."""

from __future__ import annotations

from pytorch_metric_learning import losses
from torch import Tensor, nn

from vicinal.models.losses.base import MetricLoss

__all__ = ["PublishedLoss", "arcface", "contrastive", "proxy_anchor", "proxy_nca", "triplet"]


class PublishedLoss(MetricLoss):
    """A loss of pytorch-metric-learning, which may wait for the accelerator.

    Args:
        published: The loss.
        miner: Chooses the pairs that count; None counts all.
    """

    def __init__(self, published: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.published = published
        self.miner = miner

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Loss over the mined pairs."""
        pairs = None if self.miner is None else self.miner(embeddings, labels)
        loss: Tensor = self.published(embeddings, labels, pairs)
        return loss


def contrastive(pos_margin: float = 0.0, neg_margin: float = 1.0) -> PublishedLoss:
    """Contrastive loss on L2 distances of normalized embeddings (Hadsell et al., CVPR 2006).

    Args:
        pos_margin: Distance below which a positive pair costs nothing.
        neg_margin: Distance above which a negative pair costs nothing.
    """
    return PublishedLoss(losses.ContrastiveLoss(pos_margin=pos_margin, neg_margin=neg_margin))


def triplet(margin: float = 0.05, swap: bool = False, smooth_loss: bool = False) -> PublishedLoss:
    """Triplet margin loss over all triplets of the batch (Schroff et al., "FaceNet", CVPR 2015).

    Args:
        margin: L2 distance by which a negative has to be further away than a positive.
        swap: Also compare the negative with the positive, and count the nearer.
        smooth_loss: Softplus in place of the hinge.
    """
    return PublishedLoss(losses.TripletMarginLoss(margin=margin, swap=swap, smooth_loss=smooth_loss))


def proxy_anchor(n_classes: int, dim: int, *, margin: float = 0.1, alpha: float = 32.0) -> PublishedLoss:
    """Proxy-anchor loss, one learned proxy a class (Kim et al., CVPR 2020).

    Args:
        n_classes: Labels are 0 to n_classes - 1.
        dim: Length of the embeddings.
        margin: Cosine margin.
        alpha: Scale of the exponents.
    """
    return PublishedLoss(losses.ProxyAnchorLoss(n_classes, dim, margin=margin, alpha=alpha))


def proxy_nca(n_classes: int, dim: int, *, softmax_scale: float = 1.0) -> PublishedLoss:
    """Proxy-NCA loss, one learned proxy a class (Movshovitz-Attias et al., ICCV 2017).

    Args:
        n_classes: Labels are 0 to n_classes - 1.
        dim: Length of the embeddings.
        softmax_scale: Factor on the squared distances.
    """
    return PublishedLoss(losses.ProxyNCALoss(n_classes, dim, softmax_scale=softmax_scale))


def arcface(n_classes: int, dim: int, *, margin: float = 28.6, scale: float = 64.0) -> PublishedLoss:
    """Additive angular margin loss (Deng et al., "ArcFace", CVPR 2019).

    Args:
        n_classes: Labels are 0 to n_classes - 1.
        dim: Length of the embeddings.
        margin: Angle in degrees.
        scale: Factor on the cosines.
    """
    return PublishedLoss(losses.ArcFaceLoss(n_classes, dim, margin=margin, scale=scale))
