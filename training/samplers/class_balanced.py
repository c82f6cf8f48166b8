"""Batches with the same number of images of each of their classes, of all data sets or of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from vicinal.calibration.arrays import AnyArray
from vicinal.models.errors import ConfigError
from vicinal.training.samplers.batches import ClassTurns, Draw, Sampler, draw_images, members_of_pairs


class PerClassSampler(Sampler):
    """Batches of `per_class` images of each class; one with fewer gives each of its own once."""

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

    A class with fewer images gives each once: an image is never its own positive.

    Attributes:
        batch_size: Images a batch, fewer where a class has fewer than `per_class`.
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


class SourceBalancedConfig(PerClassSampler):
    """Class-balanced batches that take a given number of classes of each data set.

    When data sets of very different sizes are mixed, drawing all classes alike would show a small one
    hardly ever, and never with negatives of its own kind.

    Attributes:
        batch_size: Images a batch, fewer where a class has fewer than `per_class`.
        per_class: Images a class and batch; divides `batch_size`.
        classes_per_source: Classes a batch takes of each data set, by its folder's name, or `demo` for the
            synthetic catalogs.
    """

    kind: Literal["source_balanced"] = "source_balanced"
    classes_per_source: dict[str, PositiveInt] = Field(min_length=1)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        total = sum(self.classes_per_source.values()) * self.per_class
        if total != self.batch_size:
            raise ValueError(
                f"classes_per_source makes batches of {total} images, batch_size is {self.batch_size}: "
                f"use batch_size {total}"
            )
        return self

    def _drawing(self, labels: AnyArray, sources: AnyArray, /) -> Draw:
        present, named = set(np.unique(sources).tolist()), set(self.classes_per_source)
        if present != named:
            raise ConfigError(
                f"classes_per_source names {', '.join(sorted(named))}; "
                f"the data sets are {', '.join(sorted(present))}"
            )
        positions = [np.flatnonzero(sources == name) for name in sorted(named)]
        draws = [
            draw_in_turns(labels[own], self.classes_per_source[name], self.per_class)
            for name, own in zip(sorted(named), positions, strict=True)
        ]

        def draw(seed: int) -> Iterator[list[int]]:
            for parts in zip(*(own(seed) for own in draws), strict=True):
                drawn = zip(positions, parts, strict=True)
                yield [int(own[one]) for own, part in drawn for one in part]

        return draw
