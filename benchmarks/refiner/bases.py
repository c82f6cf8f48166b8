"""Base embeddings of the refiner study: two losses, two backbones, and the folds they are cross-fitted on."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.losses.runs import SEEDS, SETS, with_tcm
from benchmarks.losses.training import Run

__all__ = ["BASES", "N_FOLDS", "Base", "base_run", "base_runs", "fold_runs"]

N_FOLDS = 3
_STEPS = {"omniglot": 500, "grocery": 300, "dogfacenet": 400}
# 33 grocery classes are left to train on, and 22 in a fold.
_BATCH = {"omniglot": 128, "grocery": 80, "dogfacenet": 128}
_MULTI_SIMILARITY = with_tcm({"name": "multi_similarity"}, (0.8, 0.3))


@dataclasses.dataclass(frozen=True)
class Base:
    """How the embeddings of a study are made.

    Attributes:
        name: What distinguishes it.
        loss: Loss configuration, as in a recipe.
        backbone: Name of the network; see `benchmarks.losses.training`.
    """

    name: str
    loss: dict[str, Any]
    backbone: str


BASES = {
    base.name: base
    for base in (
        Base("multi_similarity", _MULTI_SIMILARITY, "conv4"),
        Base("recall_at_k", {"name": "recall_at_k"}, "conv4"),
        Base("multi_similarity-wide", _MULTI_SIMILARITY, "conv4-wide"),
    )
}


def base_run(base: Base, images: str, seed: int) -> Run:
    """The run whose embeddings are refined."""
    sampler = {"kind": "class_balanced", "batch_size": _BATCH[images], "per_class": 4}
    return Run(
        images,
        "refiner",
        base.name,
        base.loss,
        seed,
        sampler,
        _STEPS[images],
        backbone=base.backbone,
        keep_train=True,
    )


def fold_runs(base: Base, images: str, seed: int) -> list[Run]:
    """The same run without the classes of each fold."""
    whole = base_run(base, images, seed)
    return [
        dataclasses.replace(whole, name=f"{base.name}-fold{fold}", fold=(fold, N_FOLDS))
        for fold in range(N_FOLDS)
    ]


def base_runs() -> list[Run]:
    """All of them, those first that most is tried on."""
    return [
        run
        for base in BASES.values()
        for seed in SEEDS
        for images in SETS
        for run in (base_run(base, images, seed), *fold_runs(base, images, seed))
    ]
