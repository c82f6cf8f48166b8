"""Batches of two super-labels, so that most negatives are hard."""

from __future__ import annotations

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

    Super-labels meet in rounds: in a round each meets one other (one rests where their number is odd), and
    after all rounds each has met every other once; then they are shuffled and meet anew. Within a super-label
    classes take turns. "Supervised Metric Learning to Rank for Retrieval via Contextual Similarity
    Optimization", ICML 2023, appendix H.3.

    Attributes:
        batch_size: Images a batch.
        per_class: Images a class and batch; twice of it divides `batch_size`.
    """

    kind: Literal["hierarchical"] = "hierarchical"

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

        def draw(seed: int) -> Iterator[list[int]]:
            rng = np.random.default_rng(seed)
            turns = [ClassTurns(classes) for classes in groups]
            while True:
                for meeting in _round_robin(rng.permutation(len(turns)).tolist()):
                    chosen = [one for group in meeting for one in turns[group].draw(rng, self._per_half)]
                    yield [
                        image for one in chosen for image in draw_images(rng, members[one], self.per_class)
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
        smallest = min(groups, key=len)
        if len(smallest) < self._per_half:
            raise ConfigError(
                f"half a batch needs {self._per_half} classes, "
                f"super-label {owner_of[smallest[0]]} has {len(smallest)}: "
                f"use batch_size {2 * self.per_class * len(smallest)} or less, or leave it out"
            )
        return groups


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
