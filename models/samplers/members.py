"""Which images each class has, and turns at drawing classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import ConfigError

__all__ = ["ClassTurns", "IntArray", "draw_images", "members_by_class", "members_of_pairs"]

IntArray = npt.NDArray[np.intp]


def members_by_class(labels: npt.ArrayLike) -> list[IntArray]:
    """Positions of each class's images, in the order of the labels.

    Args:
        labels: (n,) integer labels.
    """
    array = np.asarray(labels)
    order = np.argsort(array, kind="stable")
    _, starts = np.unique(array[order], return_index=True)
    return np.split(order, starts[1:]) if len(order) else []


def members_of_pairs(labels: npt.ArrayLike) -> list[IntArray]:
    """`members_by_class` of labels that all have a pair.

    Raises:
        ConfigError: A class has a single image.
    """
    members = members_by_class(labels)
    single = [int(np.asarray(labels)[group[0]]) for group in members if len(group) == 1]
    if single:
        raise ConfigError(
            f"{len(single)} classes have one image (first: {single[0]}): "
            "a pair needs two; leave these classes out"
        )
    return members


def draw_images(rng: np.random.Generator, members: IntArray, per_class: int) -> list[int]:
    """`per_class` of a class's images, some twice only where there are fewer."""
    drawn: list[int] = rng.choice(members, per_class, replace=len(members) < per_class).tolist()
    return drawn


class ClassTurns:
    """Draws classes without replacement until all had their turn, then anew.

    Args:
        classes: What to draw from, by number.
    """

    def __init__(self, classes: list[int]) -> None:
        self.classes = classes
        self._waiting: list[int] = []

    def draw(self, rng: np.random.Generator, n_classes: int) -> list[int]:
        """`n_classes` different classes, at most as many as there are."""
        if len(self._waiting) < n_classes:
            fresh = rng.permutation(len(self.classes)).tolist()
            waiting = set(self._waiting)
            self._waiting += [index for index in fresh if index not in waiting]
        chosen, self._waiting = self._waiting[:n_classes], self._waiting[n_classes:]
        return [self.classes[index] for index in chosen]
