"""Batches with the same number of images of each of their classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError
from vicinal.models.samplers.members import ClassTurns, draw_images, members_of_pairs

__all__ = ["ClassBalancedSampler"]


class ClassBalancedSampler:
    """Batches of `per_class` images of each of `batch_size / per_class` classes.

    Classes are drawn without replacement until all were drawn, then anew; a class with fewer than
    `per_class` images repeats some within the batch.

    Args:
        labels: (n,) integer labels.
        batch_size: Images a batch.
        per_class: Images a class and batch; divides `batch_size`.
        n_batches: Batches of one pass.
        seed: Seed; the same seed gives the same batches.

    Raises:
        ConfigError: Fewer classes than a batch needs, or a class with a single image.
    """

    def __init__(
        self, labels: npt.ArrayLike, *, batch_size: int, per_class: int, n_batches: int, seed: int = 0
    ) -> None:
        if batch_size % per_class:
            raise ConfigError(f"per_class {per_class} does not divide batch_size {batch_size}")
        self.per_class = per_class
        self.classes_per_batch = batch_size // per_class
        self.n_batches = n_batches
        self.seed = seed
        self._members = members_of_pairs(labels)
        if len(self._members) < self.classes_per_batch:
            raise ConfigError(
                f"a batch of {batch_size} with {per_class} a class needs {self.classes_per_batch} classes, "
                f"the data has {len(self._members)}: use batch_size {len(self._members) * per_class} or less"
            )

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(self.seed)
        turns = ClassTurns(list(range(len(self._members))))
        for _ in range(self.n_batches):
            chosen = turns.draw(rng, self.classes_per_batch)
            yield [image for one in chosen for image in draw_images(rng, self._members[one], self.per_class)]
