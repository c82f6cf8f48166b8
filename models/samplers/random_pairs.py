"""Batches of pairs, a share of them positive."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError
from vicinal.models.samplers.members import draw_images, members_by_class

__all__ = ["RandomPairsSampler"]


class RandomPairsSampler:
    """Batches of pairs of images: positions 0 and 1, positions 2 and 3, and so on.

    A pair is positive with probability `p`: two images of one class; else one image of each of two classes.
    Classes and, within them, images are drawn uniformly. A batch may hold an image more than once.

    Args:
        labels: (n,) integer labels.
        p: Probability of a positive pair, between 0 and 1.
        n_pairs: Pairs a batch.
        n_batches: Batches of one pass.
        seed: Seed; the same seed gives the same batches.

    Attributes:
        left_out: Labels of classes with one image, which are never drawn.

    Raises:
        ConfigError: `p` is not between 0 and 1, or fewer than two classes have two images.
    """

    def __init__(
        self, labels: npt.ArrayLike, *, p: float, n_pairs: int, n_batches: int, seed: int = 0
    ) -> None:
        if not 0.0 < p < 1.0:
            raise ConfigError(f"p {p} must be between 0 and 1, or one kind of pair is never drawn")
        members = members_by_class(labels)
        self.p = p
        self.n_pairs = n_pairs
        self.n_batches = n_batches
        self.seed = seed
        self.left_out = [int(np.asarray(labels)[group[0]]) for group in members if len(group) < 2]
        self._members = [group for group in members if len(group) >= 2]
        if len(self._members) < 2:
            raise ConfigError(
                f"pairs need two classes of two or more images, the data has {len(self._members)}"
            )

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_batches):
            yield [image for _ in range(self.n_pairs) for image in self._pair(rng)]

    def _pair(self, rng: np.random.Generator) -> list[int]:
        if rng.random() < self.p:
            return draw_images(rng, self._members[rng.integers(len(self._members))], 2)
        classes = rng.choice(len(self._members), 2, replace=False)
        return [image for one in classes for image in draw_images(rng, self._members[one], 1)]
