"""Batches with a fixed number of classes of each data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from vicinal.calibration.arrays import AnyArray
from vicinal.models.errors import ConfigError
from vicinal.training.samplers.batches import Draw
from vicinal.training.samplers.class_balanced import PerClassSampler, draw_in_turns


class SourceBalancedConfig(PerClassSampler):
    """Class-balanced batches that take a given number of classes of each data set.

    When data sets of very different sizes are mixed, drawing all classes alike would show a small one
    hardly ever, and never with negatives of its own kind.

    Attributes:
        batch_size: Images a batch.
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
