"""Batches of a refiner's training: embeddings with their contexts, from one space each (torch)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vicinal.calibration.arrays import Ints
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.refiner.config import RefinerRecipe
from vicinal.training.refiner.embedding_set import EmbeddingSet


@dataclass(frozen=True)
class ClassBatch:
    """Batch on the training device.

    Initial embeddings (B, d), those of their neighbors (B, k, d), zeros where the mask (B, k) has none,
    labels (B,) of 0 to n_classes - 1, and which queries are absent (B,): their context leaves out all of
    their class.
    """

    query: Tensor
    context: Tensor
    mask: Tensor
    labels: Tensor
    absent: Tensor


class ClassBatches:
    """Class-balanced batches, as many as the recipe has steps.

    A batch is drawn from one space, a space as often as it has classes: what two backbones make of an image
    cannot be compared. A class with a single item is in contexts, but not in batches.
    """

    def __init__(self, items: EmbeddingSet, recipe: RefinerRecipe, device: torch.device) -> None:
        self.recipe = recipe
        paired, self._class_ids = _paired(items)
        self.class_sizes: list[int] = np.bincount(self._class_ids[paired]).tolist()
        nearest, without_mates = (
            torch.from_numpy(items.nearest(recipe.refiner.n_neighbors, groups)[0]).to(device)
            for groups in (np.arange(len(items)), items.class_ids)
        )
        # One more row, of zeros, which position -1 stands for.
        padded = np.vstack([items.embeddings, np.zeros((1, items.dim), np.float32)])
        self._embeddings = torch.from_numpy(padded).to(device)
        self._labels = torch.from_numpy(self._class_ids).to(device)
        self._nearest, self._without_mates = nearest, without_mates
        self._spaces = [paired[items.spaces[paired] == space] for space in np.unique(items.spaces[paired])]

    def __iter__(self) -> Iterator[ClassBatch]:
        for positions in self._positions():
            yield self._draw(torch.from_numpy(positions).to(self._labels.device))

    def _positions(self) -> Iterator[Ints]:
        steps, seed, sampler = self.recipe.optimizer.steps, self.recipe.seed, self.recipe.batches.sampler
        iterators = [
            iter(sampler.batches(self._class_ids[space], n_batches=steps, seed=seed + number))
            for number, space in enumerate(self._spaces)
        ]
        n_classes = np.array([len(np.unique(self._class_ids[space])) for space in self._spaces])
        chosen = np.random.default_rng(seed).choice(
            len(self._spaces), size=steps, p=n_classes / n_classes.sum()
        )
        for number in chosen.tolist():
            yield self._spaces[number][next(iterators[number])]

    def _draw(self, positions: Tensor) -> ClassBatch:
        absent = torch.rand(len(positions), device=positions.device) < self.recipe.absent.share
        neighbors = torch.where(absent[:, None], self._without_mates[positions], self._nearest[positions])
        return ClassBatch(
            query=self._noisy(self._embeddings[positions]),
            context=self._noisy(self._embeddings[neighbors]),
            mask=neighbors >= 0,
            labels=self._labels[positions],
            absent=absent,
        )

    def _noisy(self, embeddings: Tensor) -> Tensor:
        length = self.recipe.batches.noise
        if not length:
            return embeddings
        noise = torch.randn_like(embeddings) * (length / math.sqrt(embeddings.shape[-1]))
        return functional.normalize(embeddings + noise, dim=-1)


def _paired(items: EmbeddingSet) -> tuple[Ints, Ints]:
    """Positions of the items whose class has another, and classes numbered so that these come first."""
    _, classes, sizes = np.unique(items.class_ids, return_inverse=True, return_counts=True)
    if sizes.max(initial=0) < 2:
        raise RefinerTrainingError(
            f"none of the {len(sizes)} training classes has two items: a pair is needed to learn from"
        )
    order = np.argsort(sizes < 2, kind="stable")
    numbers = np.empty(len(sizes), np.int64)
    numbers[order] = np.arange(len(sizes))
    return np.flatnonzero(sizes[classes] >= 2), numbers[classes]
