"""Contextual loss: two items are similar when their neighborhoods are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vicinal.models.errors import ConfigError
from vicinal.training.losses.base import (
    MetricLoss,
    cosine_similarities,
    mean_where,
    positive_pairs,
)


class ContextualLoss(MetricLoss):
    """Contextual loss with its contrastive term and its regularizer of the mean similarity.

    `lam L_context + (1 - lam) L_contrast + gamma L_reg`; "Supervised Metric Learning to Rank for Retrieval
    via Contextual Similarity Optimization", ICML 2023, eq. 5 and 29. `L_context` sums `(y - w)^2` over
    i != j and divides by n^2; `L_contrast` averages each term over the pairs that violate its margin.

    Args:
        k: Size of a neighborhood, even: as many items as a batch has of each class. Classes of another size
            are taken as they are; their loss is above 0 at a perfect ranking.
        eps: Slack of the neighborhoods, on squared distances.
        alpha: Slope of the gradient of the step function.
        lam: Weight of the contextual loss, in [0, 1].
        gamma: Weight of the regularizer.
        pos_margin: Cosine that positive pairs have to reach.
        neg_margin: Cosine that negative pairs must not pass.
        target_similarity: Mean cosine over all ordered pairs (each item with itself too) that is aimed at.
    """

    def __init__(
        self,
        k: int = 4,
        eps: float = 0.05,
        alpha: float = 10.0,
        lam: float = 0.8,
        gamma: float = 0.1,
        pos_margin: float = 0.75,
        neg_margin: float = 0.6,
        target_similarity: float = 0.3,
    ) -> None:
        super().__init__()
        _check_k(k)
        if not 0.0 <= lam <= 1.0:
            raise ConfigError(f"lam {lam} weighs two parts of the contextual loss: choose it in [0, 1]")
        self.k = k
        self.eps = eps
        self.alpha = alpha
        self.lam = lam
        self.gamma = gamma
        self.pos_margin = pos_margin
        self.neg_margin = neg_margin
        self.target_similarity = target_similarity

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The weighted sum of the three parts."""
        similarities = cosine_similarities(embeddings)
        positive = positive_pairs(labels)
        return (
            self.lam * self._contextual(similarities, positive)
            + (1.0 - self.lam) * self._contrastive(similarities, labels, positive)
            + self.gamma * (self.target_similarity - similarities.mean()).square()
        )

    def _contextual(self, similarities: Tensor, positive: Tensor) -> Tensor:
        contextual = contextual_similarity(similarities, self.k, self.eps, self.alpha)
        errors = (positive.to(contextual.dtype) - contextual).square()
        return errors.fill_diagonal_(0.0).sum() / errors.numel()

    def _contrastive(self, similarities: Tensor, labels: Tensor, positive: Tensor) -> Tensor:
        negative = labels[:, None] != labels
        missing = self.pos_margin - similarities
        excess = similarities - self.neg_margin
        return mean_where(missing, positive & (missing > 0)) + mean_where(excess, negative & (excess > 0))


def contextual_similarity(similarities: Tensor, k: int, eps: float, alpha: float) -> Tensor:
    """(n, n) share in [0, 1] that the neighborhoods of two items have in common, from cosine similarities.

    Neighborhoods are compared, and their complements too (Contextual Similarity Optimization; eq. 8 has the
    same value but another gradient); then each row is averaged over the item's mutual neighbors of order k/2,
    and the matrix made symmetric. A neighborhood has k items, an even number with the item itself, and those
    within `eps`, on squared distances, of the k-th nearest; `alpha` is the slope of the gradient of the step
    function.
    """
    _check_k(k)
    if k > len(similarities):
        raise ConfigError(f"a neighborhood of k={k} needs as many items, the batch has {len(similarities)}")
    near, close = _neighborhoods(similarities, k, eps, alpha)
    direct = near * _shared(near) / 2.0
    mutual = close * close.T
    expanded = mutual @ direct / mutual.sum(dim=1, keepdim=True)
    return (expanded + expanded.T) / 2.0


def _check_k(k: int) -> None:
    if k < 2 or k % 2:
        raise ConfigError(f"k {k} must be even and at least 2: neighborhoods of k and of k/2 items are used")


def _neighborhoods(similarities: Tensor, k: int, eps: float, alpha: float) -> tuple[Tensor, Tensor]:
    """(n, n) neighborhoods of k and of k/2 items, 1 where the column's item belongs to the row's."""
    # Rounding can put a duplicate before the item itself, which has to be its own first neighbor.
    fixed = similarities.detach()
    itself = similarities + torch.diag(fixed.amax(dim=1) - fixed.diagonal())
    nearest = itself.detach().topk(k, dim=1).values
    # D = 2 - 2 s, so the k-th distance + eps - D is twice the difference of similarities, plus eps.
    near = _Step.apply(2.0 * (itself - nearest[:, -1:]) + eps, alpha)
    close = _Step.apply(2.0 * (itself - nearest[:, k // 2 - 1, None]) + eps, alpha)
    return near, close


def _shared(near: Tensor) -> Tensor:
    """(n, n) share of a neighborhood that another has in common, plus the same of the complements."""
    common = _Overlaps.apply(near)
    sizes = near.sum(dim=1, keepdim=True)
    # The complements have n - |N_i| - |N_j| + |N_i n N_j| items in common: a sum in place of a product.
    common_far = common + (len(near) - sizes - sizes.T)
    fixed = sizes.detach()
    # An empty complement shares nothing with any other: 0 / 1.
    shared: Tensor = common / fixed.clamp_min(1.0) + common_far / (len(near) - fixed).clamp_min(1.0)
    return shared


class _Overlaps(torch.autograd.Function):
    """x @ x.T, of which both factors' gradients are one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        overlaps: Tensor = (gradient + gradient.T) @ x
        return overlaps


class _Step(torch.autograd.Function):
    """1 where x >= 0, else 0; its gradient is a constant slope everywhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.slope = slope
        return (x >= 0).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.slope * gradient, None
