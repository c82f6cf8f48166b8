"""Objective `search`: galleries drawn from the training items, queries of them, and two losses (torch).

One says how a gallery is ranked, the other who has a mate in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.neighbor_features import RADIUS_RANKS
from vicinal.refine.step import SMALLEST_SIMILARITY
from vicinal.training.refiner.config import RefinerRecipe, SearchConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.network import ContextRefinerNetwork

# Nearest others that are known of each item: a gallery is a part of them, and needs enough to choose from.
_LIST_LENGTH = 256
# A logarithm of what no candidate scores.
_NOTHING = -1e4


@dataclass(frozen=True)
class Neighborhood:
    """Embeddings (m, d) and their neighbors in a gallery, (m, k, d), any values where the mask (m, k) has
    none, with the neighbors' radii (m, k, 3); see `refine.neighbor_features`.
    """

    rows: Tensor
    context: Tensor
    mask: Tensor
    radii: Tensor


@dataclass(frozen=True)
class SearchBatch:
    """Gallery, as far as the queries of a batch see it.

    Attributes:
        items: (m, ...) gallery items that are candidates of any query, and any item to stand where a query
            has too few of them.
        candidates: (B, L) positions in `items`, most similar to e^0 first; any where there is none.
        is_mate: (B, L) candidates of the query's class; `is_other` are those of other classes.
        absent: (B,) queries of classes that the gallery was drawn without.
    """

    queries: Neighborhood
    items: Neighborhood
    candidates: Tensor
    is_mate: Tensor
    is_other: Tensor
    absent: Tensor


class SearchBatches:
    """Searches of galleries, as many as the recipe has steps.

    A gallery holds a random share of the visits of each space, without those of some classes. Queries are
    items whose visit is not in it, half of them of the classes left out. Neighborhoods, candidates and
    radii are those that the gallery has, taken from lists that are found once.
    """

    def __init__(self, items: EmbeddingSet, recipe: RefinerRecipe, device: torch.device) -> None:
        self.recipe = recipe
        class_ids = items.class_ids
        self.class_sizes: list[int] = np.bincount(class_ids).tolist()
        if max(self.class_sizes, default=0) < 2:
            raise RefinerTrainingError(
                f"none of the {len(self.class_sizes)} training classes has two items: "
                "a query with a mate is needed to learn from"
            )
        lists, similarities = items.nearest(_LIST_LENGTH, np.arange(len(items)))
        self._embeddings = torch.from_numpy(items.embeddings).to(device)
        self._classes = torch.from_numpy(class_ids).to(device)
        self._visits = torch.from_numpy(np.unique(items.visits, return_inverse=True)[1]).to(device)
        self._lists = torch.from_numpy(lists).to(device)
        self._similarities = torch.from_numpy(similarities).to(device)
        self._generator = torch.Generator().manual_seed(recipe.seed)

    def __iter__(self) -> Iterator[SearchBatch]:
        for _ in range(self.recipe.optimizer.steps):
            yield self._draw()

    def _draw(self) -> SearchBatch:
        search, k = self.recipe.search, self.recipe.refiner.n_neighbors
        in_gallery, is_absent = self._draw_gallery()
        absent = is_absent[self._classes]
        queries = self._draw_queries(in_gallery, absent)
        radii = self._radii(in_gallery)
        found = self._first(queries, in_gallery, max(search.n_candidates, k))
        known, places = torch.unique(found.clamp(min=0), return_inverse=True)
        kept = slice(search.n_candidates)
        same = self._classes[found[:, kept].clamp(min=0)] == self._classes[queries][:, None]
        there = found[:, kept] >= 0
        return SearchBatch(
            queries=self._neighborhood(queries, found[:, :k], radii),
            items=self._neighborhood(known, self._first(known, in_gallery, k), radii),
            candidates=places[:, kept],
            is_mate=same & there,
            is_other=~same & there,
            absent=absent[queries],
        )

    def _draw_gallery(self) -> tuple[Tensor, Tensor]:
        """(n,) items of the gallery, and (classes,) classes left out of it."""
        search = self.recipe.search
        low, high = search.gallery_share
        share = low + (high - low) * float(torch.rand((), generator=self._generator))
        n_visits = int(self._visits.max()) + 1
        lots = torch.rand(n_visits, generator=self._generator).to(self._classes.device)[self._visits]
        most_per_class = len(self._classes)
        if search.most_per_class is not None:
            fewest, most = search.most_per_class
            exponent = float(torch.rand((), generator=self._generator))
            most_per_class = round(fewest * (most / fewest) ** exponent)
        drawn = (lots < share) & (self._rank_in_class(lots) < most_per_class)
        absent = torch.rand(len(self.class_sizes), generator=self._generator) < search.absent_share
        absent = absent.to(self._classes.device)
        return drawn & ~absent[self._classes], absent

    def _rank_in_class(self, lots: Tensor) -> Tensor:
        """(n,) place of each item among those of its class, by its lot."""
        by_lot = torch.argsort(lots)
        order = by_lot[torch.argsort(self._classes[by_lot], stable=True)]
        sizes = torch.bincount(self._classes)
        starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        ranks = torch.empty_like(order)
        ranks[order] = torch.arange(len(order), device=order.device) - starts
        return ranks

    def _draw_queries(self, in_gallery: Tensor, absent: Tensor) -> Tensor:
        half = self.recipe.search.n_queries // 2
        is_seen = torch.zeros_like(in_gallery)
        is_seen[self._visits[in_gallery]] = True
        outside = torch.nonzero(~is_seen[self._visits])[:, 0]
        order = torch.randperm(len(outside), generator=self._generator).to(outside.device)
        shuffled = outside[order]
        gone = absent[shuffled]
        return torch.cat([shuffled[~gone][:half], shuffled[gone][:half]])

    def _first(self, rows: Tensor, in_gallery: Tensor, k: int) -> Tensor:
        """(m, k) nearest others that are in the gallery, -1 where the lists have no more."""
        listed = self._lists[rows]
        kept = (listed >= 0) & in_gallery[listed.clamp(min=0)]
        order = torch.argsort((~kept).to(torch.int8), dim=1, stable=True)[:, :k]
        return torch.where(torch.gather(kept, 1, order), torch.gather(listed, 1, order), -1)

    def _radii(self, in_gallery: Tensor) -> Tensor:
        """(n, 3) similarity of every item to its nearest others in the gallery, the last known for lack."""
        kept = (self._lists >= 0) & in_gallery[self._lists.clamp(min=0)]
        rank = kept.cumsum(dim=1)
        columns = []
        for number in RADIUS_RANKS:
            place = torch.where(kept & (rank <= number), rank, 0).argmax(dim=1, keepdim=True)
            radius = torch.gather(self._similarities, 1, place)[:, 0]
            columns.append(torch.where(kept.any(dim=1), radius, torch.zeros_like(radius)))
        return torch.stack(columns, dim=1)

    def _neighborhood(self, rows: Tensor, neighbors: Tensor, radii: Tensor) -> Neighborhood:
        places = neighbors.clamp(min=0)
        return Neighborhood(self._embeddings[rows], self._embeddings[places], neighbors >= 0, radii[places])


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
