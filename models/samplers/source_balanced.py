"""Batches with a fixed number of classes of each data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError
from vicinal.models.samplers.class_balanced import ClassBalancedSampler

__all__ = ["SourceBalancedSampler"]


class SourceBalancedSampler:
    """Class-balanced batches that take a given number of classes of each data set.

    When data sets of very different sizes are mixed, drawing all classes alike would show a small one
    hardly ever, and never with negatives of its own kind.

    Args:
        labels: (n,) integer labels; no class belongs to two data sets.
        sources: (n,) name of the data set of each image.
        classes_per_source: Classes a batch takes of each data set.
        per_class: Images a class and batch.
        n_batches: Batches of one pass.
        seed: Seed; the same seed gives the same batches.

    Raises:
        ConfigError: A data set is not named, is unknown, or has too few classes.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        sources: npt.ArrayLike,
        classes_per_source: Mapping[str, int],
        *,
        per_class: int,
        n_batches: int,
        seed: int = 0,
    ) -> None:
        all_labels, all_sources = np.asarray(labels), np.asarray(sources)
        present, named = set(np.unique(all_sources).tolist()), set(classes_per_source)
        if present != named:
            raise ConfigError(
                f"classes_per_source names {', '.join(sorted(named))}; "
                f"the data sets are {', '.join(sorted(present))}"
            )
        self.n_batches = n_batches
        self._positions = {name: np.flatnonzero(all_sources == name) for name in sorted(named)}
        self._samplers = {
            name: ClassBalancedSampler(
                all_labels[positions],
                batch_size=classes_per_source[name] * per_class,
                per_class=per_class,
                n_batches=n_batches,
                seed=seed,
            )
            for name, positions in self._positions.items()
        }

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        for batches in zip(*self._samplers.values(), strict=True):
            yield [
                int(positions[one])
                for positions, batch in zip(self._positions.values(), batches, strict=True)
                for one in batch
            ]
