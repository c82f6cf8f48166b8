"""Samplers: which images form a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from models.errors import ConfigError

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
        self._members = _members_by_class(np.asarray(labels))
        if len(self._members) < self.classes_per_batch:
            raise ConfigError(
                f"a batch of {batch_size} with {per_class} a class needs {self.classes_per_batch} classes, "
                f"the data has {len(self._members)}: use batch_size {len(self._members) * per_class} or less"
            )

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(self.seed)
        waiting: list[int] = []
        for _ in range(self.n_batches):
            if len(waiting) < self.classes_per_batch:
                fresh = rng.permutation(len(self._members)).tolist()
                waiting += [index for index in fresh if index not in set(waiting)]
            chosen, waiting = waiting[: self.classes_per_batch], waiting[self.classes_per_batch :]
            yield [position for index in chosen for position in self._draw(rng, index)]

    def _draw(self, rng: np.random.Generator, index: int) -> list[int]:
        members = self._members[index]
        replace = len(members) < self.per_class
        drawn: list[int] = rng.choice(members, self.per_class, replace=replace).tolist()
        return drawn


def _members_by_class(labels: npt.NDArray[np.generic]) -> list[npt.NDArray[np.intp]]:
    order = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[order], return_index=True)
    members = np.split(order, starts[1:]) if len(order) else []
    single = [int(labels[group[0]]) for group in members if len(group) == 1]
    if single:
        raise ConfigError(
            f"{len(single)} classes have one image (first: {single[0]}): "
            "a pair needs two; leave these classes out"
        )
    return members
