"""Batches with the same number of images of each of their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from vicinal.calibration.arrays import AnyArray
from vicinal.models.errors import ConfigError
from vicinal.training.samplers.batches import ClassTurns, Draw, Sampler, draw_images, members_of_pairs


class PerClassSampler(Sampler):
    """Batches of `per_class` images of each class; a class with fewer repeats some within the batch."""

    batch_size: int = Field(128, ge=4)
    per_class: int = Field(4, ge=2)

    @property
    def images_per_class(self) -> int:
        """`per_class`."""
        return self.per_class

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.batch_size % self.per_class:
            fitting = max(1, self.batch_size // self.per_class) * self.per_class
            raise ValueError(
                f"per_class {self.per_class} does not divide batch_size {self.batch_size}: use {fitting}"
            )
        return self


class ClassBalancedConfig(PerClassSampler):
    """Batches of `batch_size / per_class` classes, which take turns, with `per_class` images each.

    Attributes:
        batch_size: Images a batch.
        per_class: Images a class and batch; divides `batch_size`.
    """

    kind: Literal["class_balanced"] = "class_balanced"

    def _drawing(self, labels: AnyArray, _groups: AnyArray, /) -> Draw:
        return draw_in_turns(labels, self.batch_size // self.per_class, self.per_class)


def draw_in_turns(labels: AnyArray, n_classes: int, per_class: int) -> Draw:
    """Draw classes without replacement until all were drawn, then anew, and `per_class` images of each."""
    members = members_of_pairs(labels)
    if len(members) < n_classes:
        raise ConfigError(
            f"a batch of {n_classes * per_class} with {per_class} a class needs {n_classes} classes, "
            f"the data has {len(members)}: use batch_size {len(members) * per_class} or less"
        )

    def draw(seed: int) -> Iterator[list[int]]:
        rng, turns = np.random.default_rng(seed), ClassTurns(list(range(len(members))))
        while True:
            chosen = turns.draw(rng, n_classes)
            yield [image for one in chosen for image in draw_images(rng, members[one], per_class)]

    return draw
