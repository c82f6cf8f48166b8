"""Batches of two super-labels, so that most negatives are hard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from vicinal.calibration.arrays import AnyArray, Indices
from vicinal.models.errors import ConfigError
from vicinal.training.samplers.batches import (
    ClassTurns,
    Draw,
    draw_images,
    members_by_class,
    members_of_pairs,
)
from vicinal.training.samplers.class_balanced import PerClassSampler


class HierarchicalConfig(PerClassSampler):
    """Batches whose halves come from two super-labels, `per_class` images of each class.

    A super-label makes halves in proportion to its images, so that rare ones are not over-drawn; one with
    more images than all others together is in every batch. A cycle has as many batches as there are pairs of
    super-labels. In it they meet in rounds, in which each meets one other (one rests where their number is
    odd), until the halves of all are used up: super-labels of one size meet every other once, larger ones go
    on where smaller ones have no more. "Supervised Metric Learning to Rank for Retrieval via Contextual
    Similarity Optimization", ICML 2023, appendix H.3. The authors' code drops halves that find no partner,
    and so draws a few super-labels alike whatever their sizes; here every half finds one.

    Within a super-label classes take turns. Where it has fewer than half a batch asks for, they come more
    than once, with other images.

    Attributes:
        batch_size: Images a batch, fewer where a class has too few.
        per_class: Images a class and batch; twice of it divides `batch_size`.
    """

    kind: Literal["hierarchical"] = "hierarchical"

    @property
    def max_per_class(self) -> None:
        """None: a class may come more than once."""
        return None

    @model_validator(mode="after")
    def _halves(self) -> Self:
        unit = 2 * self.per_class
        if self.batch_size % unit:
            raise ValueError(
                f"twice per_class {self.per_class} does not divide batch_size {self.batch_size}: "
                f"use {max(1, self.batch_size // unit) * unit}"
            )
        return self

    def _drawing(self, labels: AnyArray, super_labels: AnyArray, /) -> Draw:
        members = members_of_pairs(labels)
        groups = self._classes_by_super_label(members, labels, super_labels)
        n_images = [sum(len(members[one]) for one in classes) for classes in groups]

        def draw(seed: int) -> Iterator[list[int]]:
            rng = np.random.default_rng(seed)
            turns = [ClassTurns(classes) for classes in groups]
            while True:
                for meeting in _meetings(rng, n_images):
                    chosen = Counter(
                        one for group in meeting for one in turns[group].draw(rng, self._per_half)
                    )
                    yield [
                        image
                        for one, times in chosen.items()
                        for image in draw_images(rng, members[one], times * self.per_class)
                    ]

        return draw

    @property
    def _per_half(self) -> int:
        return self.batch_size // (2 * self.per_class)

    def _classes_by_super_label(
        self, members: list[Indices], labels: AnyArray, super_labels: AnyArray
    ) -> list[list[int]]:
        if labels.shape != super_labels.shape:
            raise ConfigError(
                f"{len(labels)} labels, {len(super_labels)} super-labels: every image has one of each"
            )
        for images in members:
            owners = np.unique(super_labels[images])
            if len(owners) > 1:
                raise ConfigError(
                    f"class {labels[images[0]]} has images of super-labels {owners[0]} and {owners[1]}: "
                    "a class belongs to one"
                )
        owner_of = [super_labels[images[0]] for images in members]
        groups = [group.tolist() for group in members_by_class(owner_of)]
        if len(groups) < 2:
            raise ConfigError(
                "the hierarchical sampler needs two super-labels or more, the data sets have "
                f"{len(groups)}: set sampler.kind to 'class_balanced', or train on a data set that has them"
            )
        return groups


def _meetings(rng: np.random.Generator, n_images: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of super-labels of one cycle, each as often as it has halves."""
    left = _halves(rng, n_images)
    order = rng.permutation(len(left)).tolist()
    while any(left):
        for one, other in _round_robin(order):
            # One that has as many left as all others needs each of them.
            most = max(left)
            fits = 2 * most < sum(left) or most in (left[one], left[other])
            if left[one] and left[other] and fits:
                left[one] -= 1
                left[other] -= 1
                yield one, other


def _halves(rng: np.random.Generator, n_images: list[int]) -> list[int]:
    """Halves of each super-label in one cycle: in proportion to its images, rounded up or down at random."""
    weights = np.minimum(n_images, sum(n_images) - np.array(n_images))
    order = rng.permutation(len(weights))
    # One half for every whole number in the super-label's part of a line, which begins at a random place.
    ends = len(weights) * (len(weights) - 1) * weights[order].cumsum() + rng.integers(weights.sum())
    halves = np.empty_like(weights)
    halves[order] = np.diff(ends // weights.sum(), prepend=0)
    return halves.tolist()


def _round_robin(players: list[int]) -> list[tuple[int, int]]:
    """Every pair once, in rounds in which nobody plays twice (the circle method)."""
    circle: list[int | None] = [*players] if len(players) % 2 == 0 else [*players, None]
    meetings = []
    for _ in range(len(circle) - 1):
        for one, other in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
            if one is not None and other is not None:
                meetings.append((one, other))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return meetings
