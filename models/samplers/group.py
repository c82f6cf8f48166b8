"""(m, n)-group batches, drawn anew each time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError
from vicinal.models.samplers.members import draw_images, members_by_class

__all__ = ["GroupSampler"]


class GroupSampler:
    """Batches of `m` images of each of `n` classes, both drawn without replacement and uniformly.

    Batches do not depend on each other, as the importance weights of the balanced contrastive loss assume;
    `ClassBalancedSampler` gives every class its turn instead.

    Args:
        labels: (n_images,) integer labels.
        m: Images a class.
        n: Classes a batch.
        n_batches: Batches of one pass.
        seed: Seed; the same seed gives the same batches.

    Attributes:
        left_out: Labels of classes with fewer than `m` images, which are never drawn.

    Raises:
        ConfigError: Fewer than `n` classes have `m` images.
    """

    def __init__(self, labels: npt.ArrayLike, *, m: int, n: int, n_batches: int, seed: int = 0) -> None:
        members = members_by_class(labels)
        self.m = m
        self.n = n
        self.n_batches = n_batches
        self.seed = seed
        self.left_out = [int(np.asarray(labels)[group[0]]) for group in members if len(group) < m]
        self._members = [group for group in members if len(group) >= m]
        if len(self._members) < n:
            raise ConfigError(
                f"a batch needs n {n} classes with m {m} images, the data has {len(self._members)}: "
                "use a smaller n or m"
            )

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_batches):
            chosen = rng.choice(len(self._members), self.n, replace=False)
            yield [image for one in chosen for image in draw_images(rng, self._members[one], self.m)]
