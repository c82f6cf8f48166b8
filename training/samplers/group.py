"""(m, n)-group batches, drawn anew each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from pydantic import Field

from vicinal.calibration.arrays import AnyArray
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
