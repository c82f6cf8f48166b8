"""Batches drawn anew each time, whose design is known: (m, n) groups, and pairs, a share of them positive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from pydantic import Field

from vicinal.calibration.arrays import AnyArray, Indices
from vicinal.models.errors import ConfigError
from vicinal.training.samplers.batches import Draw, Sampler, draw_images, members_by_class


class GroupConfig(Sampler):
    """Batches of `m` images of each of `n` classes, drawn anew each time and uniformly.

    Batches do not depend on each other, as the importance weights of the balanced contrastive loss assume;
    `class_balanced` gives every class its turn instead.

    Attributes:
        m: Images a class; classes with fewer are left out.
        n: Classes a batch.
    """

    kind: Literal["group"] = "group"
    m: int = Field(4, ge=2)
    n: int = Field(32, ge=2)

    @property
    def batch_size(self) -> int:
        """`m * n`."""
        return self.m * self.n

    @property
    def images_per_class(self) -> int:
        """`m`."""
        return self.m

    @property
    def smallest_class(self) -> int:
        """`m`: images are drawn without replacement."""
        return self.m

    @property
    def batch_design(self) -> dict[str, Any]:
        """The fields of `training.losses.balanced_contrastive.GroupBatch`."""
        return {"kind": self.kind, "m": self.m, "n": self.n}

    def _drawing(self, labels: AnyArray, _groups: AnyArray, /) -> Draw:
        members = [group for group in members_by_class(labels) if len(group) >= self.m]
        if len(members) < self.n:
            raise ConfigError(
                f"a batch needs n {self.n} classes with m {self.m} images, the data has {len(members)}: "
                "use a smaller n or m"
            )

        def draw(seed: int) -> Iterator[list[int]]:
            rng = np.random.default_rng(seed)
            while True:
                chosen = rng.choice(len(members), self.n, replace=False)
                yield [image for one in chosen for image in draw_images(rng, members[one], self.m)]

        return draw


class RandomPairsConfig(Sampler):
    """Batches of pairs of images, a share of them of one class.

    Pairs are positions 0 and 1, positions 2 and 3, and so on. Classes and, within them, images are drawn
    uniformly; a batch may hold an image more than once.

    Attributes:
        n_pairs: Pairs a batch.
        p: Probability that a pair is of one class.
    """

    kind: Literal["random_pairs"] = "random_pairs"
    n_pairs: int = Field(64, ge=2)
    p: float = Field(0.5, gt=0.0, lt=1.0)

    @property
    def batch_size(self) -> int:
        """Twice `n_pairs`."""
        return 2 * self.n_pairs

    @property
    def max_per_class(self) -> int:
        """All of the batch: pairs are drawn independently."""
        return self.batch_size

    @property
    def batch_design(self) -> dict[str, Any]:
        """The fields of `training.losses.balanced_contrastive.RandomPairs`."""
        return {"kind": self.kind, "p": self.p}

    def _drawing(self, labels: AnyArray, _groups: AnyArray, /) -> Draw:
        members = [group for group in members_by_class(labels) if len(group) >= 2]
        if len(members) < 2:
            raise ConfigError(f"pairs need two classes of two or more images, the data has {len(members)}")

        def draw(seed: int) -> Iterator[list[int]]:
            rng = np.random.default_rng(seed)
            while True:
                yield [image for _ in range(self.n_pairs) for image in self._pair(rng, members)]

        return draw

    def _pair(self, rng: np.random.Generator, members: list[Indices]) -> list[int]:
        if rng.random() < self.p:
            return draw_images(rng, members[rng.integers(len(members))], 2)
        classes = rng.choice(len(members), 2, replace=False)
        return [image for one in classes for image in draw_images(rng, members[one], 1)]
