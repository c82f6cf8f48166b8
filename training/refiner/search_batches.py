"""Batches of the objective `search`: galleries drawn from the training items, and queries of them (torch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.neighbor_features import RADIUS_RANKS
from vicinal.training.refiner.config import RefinerRecipe
from vicinal.training.refiner.embedding_set import EmbeddingSet

# Nearest others that are known of each item: a gallery is a part of them, and needs enough to choose from.
_LIST_LENGTH = 256


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

    A gallery holds a random share of the items of each space, without those of some classes. Queries are
    items that are not in it, half of them of the classes left out. Neighborhoods, candidates and radii are
    those that the gallery has, taken from lists that are found once.
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
        lots = torch.rand(len(self._classes), generator=self._generator).to(self._classes.device)
        drawn = (lots < share) & (self._rank_in_class(lots) < self._draw_most_per_class())
        absent = torch.rand(len(self.class_sizes), generator=self._generator) < search.absent_share
        absent = absent.to(self._classes.device)
        return drawn & ~absent[self._classes], absent

    def _draw_most_per_class(self) -> int:
        if self.recipe.search.most_per_class is None:
            return len(self._classes)
        fewest, most = self.recipe.search.most_per_class
        exponent = float(torch.rand((), generator=self._generator))
        return round(fewest * (most / fewest) ** exponent)

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
        outside = torch.nonzero(~in_gallery)[:, 0]
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
