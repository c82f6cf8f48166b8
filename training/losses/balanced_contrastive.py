"""Balanced contrastive loss with importance weights for the way that batches are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.calibration.arrays import AnyInts
from vicinal.models.errors import ConfigError
from vicinal.training.losses.base import MetricLoss, mean_where, normalized, required, sizes_of_classes


@dataclass(frozen=True)
class GroupBatch:
    """Batches of `m` images of each of `n` classes, drawn without replacement; all ordered pairs count."""

    m: int
    n: int

    def __post_init__(self) -> None:
        if self.m < 2 or self.n < 2:
            raise ConfigError(
                f"m {self.m} images of n {self.n} classes have no pairs of both kinds: use 2 or more"
            )

    @property
    def smallest_class(self) -> int:
        """`m`."""
        return self.m

    def pairs(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Distances, first label, second label and whether the pair counts: all (b, b) off the diagonal."""
        # Through the inner products, close pairs would lose their digits.
        distances = torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        return distances, labels[:, None], labels[None, :], ~itself

    def factors(self, n_images: int, n_classes: int) -> tuple[float, float]:
        """Importance weight of a positive pair over N_y (N_y - 1), and of a negative over N_yi N_yj.

        It is the uniform probability of an ordered pair over the design's.
        """
        common = n_classes * (self.m * self.n - 1) / (n_images * (n_images - 1))
        return common / (self.m - 1), common * (n_classes - 1) / (self.m * (self.n - 1))

    def made(self, labels: Tensor) -> Tensor:
        """Scalar of bool: labels (b,) are `n` classes with `m` items each."""
        return (sizes_of_classes(labels) == self.m).all() & (len(labels) == self.m * self.n)


@dataclass(frozen=True)
class RandomPairs:
    """Batches of pairs: rows 0 and 1, rows 2 and 3, and so on; a pair is positive with probability `p`.

    A positive pair is two images of a class, a negative one an image of each of two classes; classes
    and, within them, images are drawn uniformly.
    """

    p: float

    def __post_init__(self) -> None:
        if not 0.0 < self.p < 1.0:
            raise ConfigError(f"p {self.p} must be between 0 and 1, or one kind of pair is never drawn")

    @property
    def smallest_class(self) -> int:
        """2, what a positive pair needs."""
        return 2

    def pairs(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Distances, first label, second label and whether the pair counts: (b / 2,) neighboring rows."""
        if len(labels) % 2:
            raise ConfigError(f"a batch of pairs has an even number of rows, got {len(labels)}")
        distances = torch.linalg.vector_norm(embeddings[::2] - embeddings[1::2], dim=1)
        first, second = labels[::2], labels[1::2]
        return distances, first, second, torch.ones_like(first, dtype=torch.bool)

    def factors(self, n_images: int, n_classes: int) -> tuple[float, float]:
        """See `GroupBatch`."""
        common = n_classes / (n_images * (n_images - 1))
        return common / self.p, common * (n_classes - 1) / (1.0 - self.p)

    def made(self, labels: Tensor) -> Tensor:
        """True: pairs may be of any classes."""
        return torch.ones((), dtype=torch.bool, device=labels.device)


BatchDesign = GroupBatch | RandomPairs


class BalancedContrastiveLoss(MetricLoss):
    """Contrastive loss whose negatives weigh the same for small and large classes, unbiased for its batches.

    "Deep Metric Learning via Weighted Contrastive Loss", eq. 15 and 16: over ordered pairs,
    `Y dist^2 + (1 - Y) eta max(0, margin - dist)^2` with
    `eta_ij = negatives_per_positive / (L - 1) * (N_yi - 1) / N_yj`. Each pair of a batch is weighted by its
    uniform probability over its probability in the batch design, so that the expected loss of a batch is the
    mean over all ordered pairs of the data set.

    Args:
        class_sizes: (L,) images of each class in the data set; labels are positions in it. Classes too small
            for the batch design are left out, and must not be drawn.
        batch_design: `GroupBatch(m, n)` or `RandomPairs(p)`, or their fields with the `kind` of the sampler.
        margin: Distance that negative pairs have to reach: 4 to 10 in the paper, below 2 if normalized.
        negatives_per_positive: Weight of all negatives of an image against all its positives.
        normalize: L2-normalize the embeddings, which the paper does not.
        balance: Weigh negatives by eta; without it eta is 1, which is the plain contrastive loss.
        importance: Exponent of the importance weights, in [0, 1]: 1, or true, weighs pairs for the way that
            batches are drawn, 0, or false, all pairs of a batch alike; between them the estimate has a bias
            and less variance.

    Attributes:
        left_out: Labels of the classes that are too small.
        n_classes: Classes that are left.
        n_images: Images of the classes that are left.
    """

    def __init__(
        self,
        class_sizes: Sequence[int] | AnyInts,
        batch_design: BatchDesign | Mapping[str, Any],
        margin: float,
        negatives_per_positive: float = 256,
        normalize: bool = False,
        *,
        balance: bool = True,
        importance: float = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(batch_design, Mapping):
            fields = {key: value for key, value in batch_design.items() if key != "kind"}
            batch_design = GroupBatch(**fields) if batch_design["kind"] == "group" else RandomPairs(**fields)
        if not 0.0 <= importance <= 1.0:
            raise ConfigError(f"importance {importance} is an exponent: choose it in [0, 1]")
        sizes = np.asarray(class_sizes, dtype=np.int64)
        large = sizes >= batch_design.smallest_class
        self.left_out: list[int] = np.flatnonzero(~large).tolist()
        self.n_classes, self.n_images = int(large.sum()), int(sizes[large].sum())
        needed = batch_design.n if isinstance(batch_design, GroupBatch) else 2
        if self.n_classes < needed:
            raise ConfigError(
                f"{batch_design} needs {needed} classes of at least {batch_design.smallest_class} images, "
                f"the data has {self.n_classes}"
            )
        self.batch_design = batch_design
        self.margin = margin
        self.negatives_per_positive = negatives_per_positive
        self.normalize = normalize
        self.distance = "cosine" if normalize else "euclidean"
        self.balance = balance
        self.importance = float(importance)
        self._sizes: Tensor
        self.register_buffer("_sizes", torch.from_numpy(np.where(large, sizes, 0)), persistent=False)

    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Mean over the batch's ordered pairs of weight times loss."""
        embeddings = normalized(embeddings) if self.normalize else embeddings
        distances, first, second, counted = self.batch_design.pairs(embeddings, labels)
        sizes = self._sizes.to(embeddings.device)
        last = len(sizes) - 1
        n_first, n_second = (sizes[of.clamp(0, last)].to(distances.dtype) for of in (first, second))
        near, far = distances.square(), (self.margin - distances).clamp_min(0).square()
        if self.balance:
            eta = self.negatives_per_positive / (self.n_classes - 1) * (n_first - 1) / n_second.clamp_min(1)
            far = eta * far
        if self.importance:
            positive, negative = self.batch_design.factors(self.n_images, self.n_classes)
            near = (positive * n_first * (n_first - 1)) ** self.importance * near
            far = (negative * n_first * n_second) ** self.importance * far
        loss = mean_where(torch.where(first == second, near, far), counted)
        known = (labels >= 0) & (labels <= last) & (sizes[labels.clamp(0, last)] > 0)
        loss = required(
            loss,
            known.all(),
            f"a label of the batch is not among the {self.n_classes} classes of class_sizes with at least "
            f"{self.batch_design.smallest_class} images: leave out those of left_out when sampling",
        )
        return required(
            loss, self.batch_design.made(labels), f"the batch is not one of {self.batch_design}: sample by it"
        )
