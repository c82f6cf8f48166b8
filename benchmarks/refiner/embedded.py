"""Embeddings of one base as the refiner study uses them: searches, and classes to train and to choose on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.losses.measures import Labelled
from benchmarks.refiner.searches import Embeddings, Labels, Search, deal, search_of
from vicinal.training.refiner.embedding_set import EmbeddingSet

__all__ = ["N_FOLDS", "Base", "Embedded", "Trained", "Wanted", "in_one_space", "prepare"]

Folds = npt.NDArray[np.int64]
N_FOLDS = 3
_HELD_FOLD = N_FOLDS - 1


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one base.

    Attributes:
        calibration: Search of the calibration classes.
        test: Search of the test classes.
        held_out: Searches among classes that no refiner was trained on.
        held_set: The same embeddings, for validation.
        seen: To train on, as the base embeds what it was trained on.
        unseen: The same classes as bases embed them that never saw them.
    """

    calibration: Search
    test: Search
    held_out: list[Search]
    held_set: EmbeddingSet
    seen: EmbeddingSet
    unseen: EmbeddingSet


@dataclass(frozen=True)
class Wanted:
    """What a base is asked for.

    Attributes:
        images: Name of the image set.
        seed: Seed of whatever the base learns.
        roots: Folder of the protocol folders.
        work: Folder of the study.
    """

    images: str
    seed: int
    roots: Path
    work: Path


class Base(Protocol):
    """How the embeddings of a study are made."""

    @property
    def name(self) -> str:
        """What distinguishes it."""
        ...

    def is_ready(self, wanted: Wanted, /) -> bool:
        """Whether what it needs is there."""
        ...

    def embed(self, wanted: Wanted, /) -> Embedded:
        """Embeddings of an image set."""
        ...


@dataclass(frozen=True)
class Trained:
    """Training classes of a base.

    Attributes:
        labels: (n,) class names.
        folds: (n,) fold of each class.
        seen: (n, d) embeddings, L2-normalized, as the base makes them.
        unseen: (n, d) the same by bases that never saw the class; `seen` itself where no base saw any.
    """

    labels: Labels
    folds: Folds
    seen: Embeddings
    unseen: Embeddings


def in_one_space(whole: Embeddings, others: Sequence[Embeddings], folds: Folds) -> Embeddings:
    """Embeddings of each fold by the base that was trained without it, turned into the whole base's space.

    Args:
        whole: (n, d) by the base that was trained on all folds.
        others: (n, d) by the base without each fold, in the order of the folds.
        folds: (n,) fold of each embedding.

    Returns:
        (n, d), each turned by the rotation that fits the classes both bases saw.
    """
    turned = np.empty_like(whole)
    for fold, other in enumerate(others):
        left_out = folds == fold
        left, _, right = np.linalg.svd(other[~left_out].T @ whole[~left_out])
        turned[left_out] = (other @ (left @ right))[left_out]
    return turned


def prepare(
    trained: Trained,
    calibration: tuple[Embeddings, Labelled],
    test: tuple[Embeddings, Labelled],
    validation: Sequence[tuple[Embeddings, Labels]] = (),
    *,
    most_kept: int | None = None,
    most_held: int | None = None,
) -> Embedded:
    """Searches and sets of a base; the last fold of the training classes is held out.

    Args:
        trained: Its training classes.
        calibration: Embeddings and images of the calibration classes.
        test: The same of the test classes.
        validation: Embeddings and labels of more classes to hold out.
        most_kept: Most classes that refiners are trained on, the first by name; None takes all.
        most_held: The same of the classes held out.
    """
    labels = trained.labels
    kept = _first_classes(labels, trained.folds != _HELD_FOLD, most_kept)
    held_out = _first_classes(labels, trained.folds == _HELD_FOLD, most_held)
    held = [*validation, (trained.unseen[held_out], labels[held_out])]
    is_seen = trained.seen is not trained.unseen
    return Embedded(
        calibration=search_of(*calibration),
        test=search_of(*test),
        held_out=[search for one in held for search in deal(*one)],
        held_set=EmbeddingSet.join([EmbeddingSet.of(*one) for one in held]),
        seen=EmbeddingSet.of(trained.seen[kept], labels[kept]),
        # Where no base saw the classes there is one space.
        unseen=EmbeddingSet.of(trained.unseen[kept], labels[kept], trained.folds[kept] if is_seen else None),
    )


def _first_classes(labels: Labels, mask: npt.NDArray[np.bool_], most: int | None) -> npt.NDArray[np.bool_]:
    return mask & np.isin(labels, np.unique(labels[mask])[:most])
