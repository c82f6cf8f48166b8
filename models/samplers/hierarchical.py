"""Batches of two super-labels, so that most negatives are hard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError
from vicinal.models.samplers.members import ClassTurns, draw_images, members_by_class, members_of_pairs

__all__ = ["HierarchicalSampler"]


class HierarchicalSampler:
    """Batches whose halves come from two super-labels, `per_class` images of each class.

    Super-labels meet in rounds: in a round each meets one other (one rests where their number is odd), and
    after all rounds each has met every other once; then they are shuffled and meet anew. Within a super-label
    classes are drawn without replacement until all were drawn. "Supervised Metric Learning to Rank for
    Retrieval via Contextual Similarity Optimization", ICML 2023, appendix H.3.

    Args:
        labels: (n,) integer labels.
        super_labels: (n,) integer labels of groups of classes.
        batch_size: Images a batch.
        per_class: Images a class and batch; twice of it divides `batch_size`.
        n_batches: Batches of one pass.
        seed: Seed; the same seed gives the same batches.

    Raises:
        ConfigError: Fewer than two super-labels, one with fewer classes than half a batch needs, a class
            in two super-labels, or a class with a single image.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        super_labels: npt.ArrayLike,
        *,
        batch_size: int,
        per_class: int,
        n_batches: int,
        seed: int = 0,
    ) -> None:
        if batch_size % (2 * per_class):
            raise ConfigError(f"twice per_class {per_class} does not divide batch_size {batch_size}")
        self.per_class = per_class
        self.classes_per_half = batch_size // (2 * per_class)
        self.n_batches = n_batches
        self.seed = seed
        self._members = members_of_pairs(labels)
        self._groups = self._classes_by_super_label(np.asarray(labels), np.asarray(super_labels))

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(self.seed)
        turns = [ClassTurns(classes) for classes in self._groups]
        meetings: list[tuple[int, int]] = []
        for _ in range(self.n_batches):
            meetings = meetings or _round_robin(rng.permutation(len(turns)).tolist())
            halves = [turns[group].draw(rng, self.classes_per_half) for group in meetings.pop(0)]
            chosen = [one for half in halves for one in half]
            yield [image for one in chosen for image in draw_images(rng, self._members[one], self.per_class)]

    def _classes_by_super_label(
        self, labels: npt.NDArray[np.generic], super_labels: npt.NDArray[np.generic]
    ) -> list[list[int]]:
        if labels.shape != super_labels.shape:
            raise ConfigError(
                f"{len(labels)} labels, {len(super_labels)} super-labels: every image has one of each"
            )
        for members in self._members:
            owners = np.unique(super_labels[members])
            if len(owners) > 1:
                raise ConfigError(
                    f"class {labels[members[0]]} has images of super-labels {owners[0]} and {owners[1]}: "
                    "a class belongs to one"
                )
        owner_of = [super_labels[members[0]] for members in self._members]
        groups = [group.tolist() for group in members_by_class(owner_of)]
        if len(groups) < 2:
            raise ConfigError(f"half a batch comes from each of two super-labels, the data has {len(groups)}")
        smallest = min(groups, key=len)
        if len(smallest) < self.classes_per_half:
            raise ConfigError(
                f"half a batch needs {self.classes_per_half} classes, "
                f"super-label {owner_of[smallest[0]]} has {len(smallest)}: "
                f"use batch_size {2 * self.per_class * len(smallest)} or less, or leave it out"
            )
        return groups


def _round_robin(players: list[int]) -> list[tuple[int, int]]:
    """Every pair once, in rounds in which nobody plays twice (the circle method)."""
    circle: list[int | None] = [*players] if len(players) % 2 == 0 else [*players, None]
    meetings = []
    for _ in range(len(circle) - 1):
        for one, other in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
            if one is not None and other is not None:
                meetings.append((one, other))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return meetings
