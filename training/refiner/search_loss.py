"""Losses of the objective `search`: how a gallery is ranked, and who has a mate in it (torch)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vicinal.refine.step import SMALLEST_SIMILARITY
from vicinal.training.refiner.config import SearchConfig
from vicinal.training.refiner.network import ContextRefinerNetwork
from vicinal.training.refiner.search_batches import SearchBatch

_NOTHING = -1e4


def search_loss(network: ContextRefinerNetwork, batch: SearchBatch, config: SearchConfig) -> Tensor:
    """Sum of both losses for refined queries that search refined items."""
    queries, items = batch.queries, batch.items
    steps, _, *lengths = network(queries.rows, queries.context, queries.mask, queries.radii)
    refined_items = network(items.rows, items.context, items.mask)[0][:, -1]
    similarities = torch.matmul(refined_items[batch.candidates], steps[:, -1, :, None])[..., 0]
    ranks = rank_loss(similarities, batch.is_mate, batch.is_other, config.rank_sharpness)
    # Without a level the direction alone can tell queries apart.
    scores = (similarities.detach() if lengths else similarities).clamp(min=SMALLEST_SIMILARITY).log()
    scores = scores + lengths[0][:, -1:].log() if lengths else scores
    return ranks + mate_loss(scores, batch, config)


def rank_loss(similarities: Tensor, is_mate: Tensor, is_other: Tensor, sharpness: float) -> Tensor:
    """Smoothed 1 - average precision: a scalar in [0, 1], 0 with a graph where there is no mate.

    Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval" (ECCV 2020), over the
    candidates (B, L) of each query and the mean of all mates: a mate with p mates and r others ranked before
    it has precision (1 + p) / (1 + p + r). `sharpness` is a factor on differences before the sigmoid.
    """
    before = torch.sigmoid((similarities[:, None, :] - similarities[:, :, None]) * sharpness)
    # A mate is compared with itself as well, which counts one half.
    mates = (before * is_mate[:, None, :]).sum(dim=2) - 0.5
    others = (before * is_other[:, None, :]).sum(dim=2)
    lost = others / (1.0 + mates + others)
    return (lost * is_mate).sum() / is_mate.sum().clamp(min=1)


def mate_loss(scores: Tensor, batch: SearchBatch, config: SearchConfig) -> Tensor:
    """Smoothed rate at which a query without a mate has a better score than a query with one, times ten.

    Mean of `softplus(gamma (a_i - m_j)) / gamma` over the best score m_j of a mate of each query that has
    one, and the best scores a_i of those queries without a mate that have the highest. `scores` (B, L) are
    logarithms; 0 with a graph where queries with or without a mate are missing.
    """
    has_mate = batch.is_mate.any(dim=1)
    with_mate = scores.masked_fill(~batch.is_mate, _NOTHING).amax(dim=1)[has_mate]
    is_searched = batch.absent & batch.is_other.any(dim=1)
    without = scores.masked_fill(~batch.is_other, _NOTHING).amax(dim=1)[is_searched]
    if not len(with_mate) or not len(without):
        return scores.sum() * 0.0
    hardest = without.topk(max(1, round(config.hardest * len(without)))).values
    differences = (hardest[None] - with_mate[:, None]) * config.level_sharpness
    return 10.0 * functional.softplus(differences).mean() / config.level_sharpness
