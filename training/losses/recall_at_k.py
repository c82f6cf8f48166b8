"""Recall@k surrogate loss, with or without similarity mixup."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveFloat
from torch import Tensor

from vicinal.models.errors import ConfigError
from vicinal.training.losses.base import MetricLoss, cosine_similarities, mean_where
from vicinal.training.losses.soft_ranks import (
    Classmates,
    VirtualExamples,
    classmates,
    largest_class,
    soft_ranks,
    within_limit,
)

_KS = (1, 2, 4, 8, 16)
_SIMIX_KS = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32)


class RecallAtKLoss(MetricLoss):
    """1 - recall@k with smooth ranks, averaged over several k and over the queries with positives.

    "Recall@k Surrogate Loss with Large Batches and Similarity Mixup", CVPR 2022, eq. 6, 7, 9 and 10. Every
    item of the batch is a query; it is not in the database of its own ranks (eq. 6). A perfect ranking has a
    loss above 0. The cost is n^2 times the positives a query.

    Args:
        ks: Ranks at which the recall counts; None takes the paper's: 1, 2, 4, 8, 16, with SiMix 1, 2, 4, 8,
            12, 16, ..., 32.
        rank_temperature: Width of the sigmoids over ranks.
        similarity_temperature: Width of the sigmoids over similarities.
        simix: Add a virtual example between the two items of every positive pair, as query and database item.
        max_per_class: Largest number of items of one class in a batch. Without it the labels are counted on
            the host, which waits for them when they are on an accelerator.
    """

    def __init__(
        self,
        ks: Sequence[int] | None = None,
        rank_temperature: PositiveFloat = 1.0,
        similarity_temperature: PositiveFloat = 0.01,
        simix: bool = False,
        *,
        max_per_class: int | None = None,
    ) -> None:
        super().__init__()
        if ks is None:
            ks = _SIMIX_KS if simix else _KS
        if not ks or min(ks) < 1:
            raise ConfigError(f"ks {list(ks)} must be one or more ranks from 1 on")
        self.ks = tuple(ks)
        self.rank_temperature = rank_temperature
        self.similarity_temperature = similarity_temperature
        self.simix = simix
        self.max_per_class = max_per_class

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Mean over the queries, virtual ones included, that have a positive."""
        most = largest_class(labels, self.max_per_class)
        batch = classmates(labels, most)
        virtual = mix_positives(batch, embeddings.dtype) if self.simix else None
        mates = with_virtual(batch, virtual) if virtual else batch
        ranks = soft_ranks(cosine_similarities(embeddings), mates, self.similarity_temperature, virtual)
        recall = soft_recall(ranks, mates.exist, self.ks, self.rank_temperature)
        loss = mean_where(1.0 - recall, mates.exist.any(dim=1))
        return within_limit(loss, batch, most)


def soft_recall(ranks: Tensor, exist: Tensor, ks: Sequence[int], temperature: float) -> Tensor:
    """(q,) smooth recall@k of each query, averaged over k, in [0, 1]; 0 for a query without positives.

    Of (q, p) smooth numbers of items before each positive, of which those that `exist` are no padding.
    """
    n_positives = exist.sum(dim=1)
    recalls = []
    for k in ks:
        reached = torch.where(exist, torch.sigmoid((k - 1 - ranks) / temperature), 0.0)
        recalls.append(reached.sum(dim=1).clamp_max(k) / n_positives.clamp(1, k))
    return torch.stack(recalls).mean(dim=0)


def mix_positives(mates: Classmates, dtype: torch.dtype) -> VirtualExamples:
    """Mix every positive pair once, with a share drawn from U(0, 1).

    SiMix, eq. 9 and 10 of the paper: n * floor(m / 2) virtual examples, padding included, between two items
    of a class, m the size of the largest; only similarities are made of them.
    """
    n_items, width = mates.indices.shape
    steps = torch.arange(1, (width + 1) // 2 + 1, device=mates.indices.device)
    twice, sizes = 2 * steps, mates.sizes[:, None]
    # In a circle of even size, both ends of a diameter see each other at the same step: one of them counts.
    once = (twice < sizes) | ((twice == sizes) & (mates.positions[:, None] < steps))
    first = torch.arange(n_items, device=steps.device)[:, None].expand_as(once)
    return VirtualExamples(
        first.reshape(-1),
        mates.indices[:, : len(steps)].reshape(-1),
        torch.rand(once.numel(), dtype=dtype, device=steps.device),
        once.reshape(-1),
    )


def with_virtual(mates: Classmates, virtual: VirtualExamples) -> Classmates:
    """Classmates of the n items and the v virtual examples; padding has none and is none's."""
    n_items, width = mates.indices.shape
    padding = n_items + torch.arange(len(virtual.exist), device=virtual.exist.device)
    own: Tensor = torch.where(virtual.exist, mates.class_ids[virtual.first], padding)
    most = width + 1
    return classmates(torch.cat([mates.class_ids, own]), most * (most + 1) // 2)
