"""Bases that learned from scratch: two losses, two backbones, and the folds they are cross-fitted on."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.losses.images import load_parts
from benchmarks.losses.runs import SEEDS, SETS, with_tcm
from benchmarks.losses.training import Run, is_done, load_embeddings
from benchmarks.refiner.embedded import N_FOLDS, Embedded, Trained, Wanted, in_one_space, prepare
from vicinal.models.similarity import normalize

__all__ = ["BASES", "ScratchBase", "base_runs"]

_STEPS = {"omniglot": 500, "grocery": 300, "dogfacenet": 400}
# 33 grocery classes are left to train on, and 22 in a fold.
_BATCH = {"omniglot": 128, "grocery": 80, "dogfacenet": 128}
# More would cost time and tell little.
_MOST_HELD_CLASSES = 100
_MULTI_SIMILARITY = with_tcm({"name": "multi_similarity"}, (0.8, 0.3))


@dataclasses.dataclass(frozen=True)
class ScratchBase:
    """A network that learned from scratch.

    Attributes:
        name: What distinguishes it.
        loss: Loss configuration, as in a recipe.
        backbone: Name of the network; see `benchmarks.losses.training`.
    """

    name: str
    loss: dict[str, Any]
    backbone: str

    def is_ready(self, wanted: Wanted) -> bool:
        """Whether the base and those of its folds are trained."""
        return all(is_done(run, wanted.work) for run in self.runs(wanted.images, wanted.seed))

    def embed(self, wanted: Wanted) -> Embedded:
        """Embeddings of an image set."""
        parts = load_parts(wanted.roots / wanted.images, wanted.work)
        first, *others = (
            {name: normalize(one) for name, one in load_embeddings(run, wanted.work).items()}
            for run in self.runs(wanted.images, wanted.seed)
        )
        folds = parts.train.class_ids % N_FOLDS
        unseen = in_one_space(first["train"], [other["train"] for other in others], folds)
        return prepare(
            Trained(parts.train.labels, folds, first["train"], unseen),
            (first["calibration"], parts.calibration),
            (first["test"], parts.test),
            [(first["validation"], parts.validation.labels)],
            most_held=_MOST_HELD_CLASSES,
        )

    def runs(self, images: str, seed: int) -> list[Run]:
        """The run whose embeddings are refined, and the same without the classes of each fold."""
        whole = Run(
            images,
            "refiner",
            self.name,
            self.loss,
            seed,
            {"kind": "class_balanced", "batch_size": _BATCH[images], "per_class": 4},
            _STEPS[images],
            backbone=self.backbone,
            keep_train=True,
        )
        folds = [
            dataclasses.replace(whole, name=f"{self.name}-fold{fold}", fold=(fold, N_FOLDS))
            for fold in range(N_FOLDS)
        ]
        return [whole, *folds]


BASES = {
    base.name: base
    for base in (
        ScratchBase("multi_similarity", _MULTI_SIMILARITY, "conv4"),
        ScratchBase("recall_at_k", {"name": "recall_at_k"}, "conv4"),
        ScratchBase("multi_similarity-wide", _MULTI_SIMILARITY, "conv4-wide"),
    )
}


def base_runs() -> list[Run]:
    """All of them, those first that most is tried on."""
    return [
        run for base in BASES.values() for seed in SEEDS for images in SETS for run in base.runs(images, seed)
    ]
