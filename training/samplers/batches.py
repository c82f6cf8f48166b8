"""Base of every sampler: batches as lists of positions, drawn from the images of each class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from vicinal.calibration.arrays import AnyArray, Indices
from vicinal.calibration.frozen import Frozen
from vicinal.models.errors import ConfigError

# Batches without end, by the seed.
Draw = Callable[[int], Iterator[list[int]]]


@dataclass(frozen=True)
class Batches:
    """Batches as lists of positions; iterating anew gives the same ones."""

    draw: Draw
    n_batches: int
    seed: int

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        yield from islice(self.draw(self.seed), self.n_batches)


class Sampler(Frozen, ABC):
    """Configuration of a sampler.

    Attributes:
        chunk_size: Images embedded at a time (multistage back-propagation): the batch then needs no more
            memory than a chunk, and one more forward pass. None embeds the batch at once.
    """

    chunk_size: int | None = Field(None, ge=1)

    @property
    def smallest_class(self) -> int:
        """Least images of a class that can be drawn: 2, what a pair needs."""
        return 2

    @property
    def images_per_class(self) -> int | None:
        """Images that a batch has of each of its classes that has as many; None where that differs."""
        return None

    @property
    def max_per_class(self) -> int | None:
        """Largest number of images of one class in a batch."""
        return self.images_per_class

    @property
    def batch_design(self) -> dict[str, Any] | None:
        """Design that makes the balanced contrastive loss exact; None where pairs are not drawn uniformly."""
        return None

    def batches(
        self, labels: npt.ArrayLike, groups: npt.ArrayLike = (), *, n_batches: int, seed: int = 0
    ) -> Batches:
        """Batches of these images.

        `groups` are the (n,) super-labels for `hierarchical`, the data sets for `source_balanced`; other
        samplers pass them over.
        """
        return Batches(self._drawing(np.asarray(labels), np.asarray(groups)), n_batches, seed)

    @abstractmethod
    def _drawing(self, labels: AnyArray, groups: AnyArray, /) -> Draw:
        """Give what draws the batches; raise a ConfigError where the images cannot fill them."""


def members_by_class(labels: npt.ArrayLike) -> list[Indices]:
    """Positions of each class's images, in the order of the labels."""
    array = np.asarray(labels)
    order = np.argsort(array, kind="stable")
    _, starts = np.unique(array[order], return_index=True)
    return np.split(order, starts[1:]) if len(order) else []


def members_of_pairs(labels: npt.ArrayLike) -> list[Indices]:
    """`members_by_class` of labels that all have a pair."""
    members = members_by_class(labels)
    single = [np.asarray(labels)[group[0]] for group in members if len(group) == 1]
    if single:
        raise ConfigError(
            f"{len(single)} classes have one image (first: {single[0]}): "
            "a pair needs two; leave these classes out"
        )
    return members


def draw_images(rng: np.random.Generator, members: Indices, per_class: int) -> list[int]:
    """`per_class` different images of a class, or all; a copy would be a positive that teaches nothing."""
    drawn: list[int] = rng.choice(members, min(per_class, len(members)), replace=False).tolist()
    return drawn


class ClassTurns:
    """Draws classes without replacement until all had their turn, then anew."""

    def __init__(self, classes: list[int]) -> None:
        self.classes = classes
        self._waiting: list[int] = []

    def draw(self, rng: np.random.Generator, n_classes: int) -> list[int]:
        """`n_classes` classes, all different as far as there are as many."""
        chosen: list[int] = []
        while len(chosen) < n_classes:
            chosen += self._different(rng, min(n_classes - len(chosen), len(self.classes)))
        return chosen

    def _different(self, rng: np.random.Generator, n_classes: int) -> list[int]:
        if len(self._waiting) < n_classes:
            fresh = rng.permutation(len(self.classes)).tolist()
            waiting = set(self._waiting)
            self._waiting += [index for index in fresh if index not in waiting]
        chosen, self._waiting = self._waiting[:n_classes], self._waiting[n_classes:]
        return [self.classes[index] for index in chosen]
