"""Bases that start from a network with ImageNet weights: its features, a part of them, and heads on them."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np

from benchmarks.losses.features import BACKBONE, FeatureParts, load_features
from benchmarks.losses.learners import HEAD, train
from benchmarks.losses.runs import BASE_LOSSES, run_of
from benchmarks.losses.training import Run
from benchmarks.refiner.embedded import N_FOLDS, Base, Embedded, Trained, Wanted, in_one_space, prepare
from benchmarks.refiner.searches import Embeddings
from vicinal.models.similarity import normalize
from vicinal.training.backbones.backbone import classifier_of
from vicinal.training.backbones.projection import from_classifier

__all__ = ["PRETRAINED_BASES", "TUNED_BASES", "ClassifierBase", "FeatureBase", "HeadBase", "features_of"]

# Chosen on held-out classes by the study of heads; see docs/studies/pretrained-heads.md.
_RATES = {"grocery": 3e-4, "dogfacenet": 3e-4, "omniglot": 3e-3}
_STEPS = 200
# Characters have twenty images each: all of them would take hours.
_MOST_KEPT = {"omniglot": 120}
_MOST_HELD = {"omniglot": 60}
# Every how many-th test class is kept.
_TEST_CLASSES = {"omniglot": 2}


@dataclasses.dataclass(frozen=True)
class FeatureBase:
    """The features as the network gives them; no class of any set was seen."""

    name: str = "features"

    def is_ready(self, _: Wanted) -> bool:
        """Always: features that are missing are computed."""
        return True

    def embed(self, wanted: Wanted) -> Embedded:
        """Embeddings of an image set."""
        parts, matrix = features_of(wanted), self.matrix()
        train, calibration, test = (
            normalize(part.plain if matrix is None else part.plain @ matrix)
            for part in (parts.train, parts.calibration, parts.test)
        )
        return _prepare(wanted.images, parts, (train, train), calibration, test)

    def matrix(self) -> Embeddings | None:
        """(d, d') matrix that features are multiplied with; None leaves them as they are."""
        return None


@dataclasses.dataclass(frozen=True)
class ClassifierBase(FeatureBase):
    """The directions of the features that the network's own classifier looks at.

    Attributes:
        dim: Directions.
    """

    name: str = "classifier"
    dim: int = 384

    def matrix(self) -> Embeddings:
        """(d, dim) orthonormal directions."""
        return _directions(self.dim)


@dataclasses.dataclass(frozen=True)
class HeadBase:
    """A linear head, trained on the training classes of a set and cross-fitted on its folds.

    Attributes:
        loss: Name of the loss in `losses.runs.BASE_LOSSES`.
    """

    name: str = "head"
    loss: str = "multi_similarity"

    def is_ready(self, _: Wanted) -> bool:
        """Always: heads that are missing are trained."""
        return True

    def embed(self, wanted: Wanted) -> Embedded:
        """Embeddings of an image set."""
        parts = features_of(wanted)
        folds = parts.train.class_ids % N_FOLDS
        head, *others = (_head(run, parts, wanted.work) for run in self.runs(wanted.images, wanted.seed))
        seen = normalize(parts.train.plain @ head)
        unseen = in_one_space(seen, [normalize(parts.train.plain @ other) for other in others], folds)
        calibration, test = (normalize(part.plain @ head) for part in (parts.calibration, parts.test))
        return _prepare(wanted.images, parts, (seen, unseen), calibration, test)

    def runs(self, images: str, seed: int) -> list[Run]:
        """The run on all training classes, and the same without the classes of each fold."""
        common = {"learning_rate": _RATES[images], "steps": _STEPS}
        return [
            run_of(
                images, "refiner", f"{self.name}{suffix}", BASE_LOSSES[self.loss], seed, fold=fold, **common
            )
            for suffix, fold in [("", None), *((f"-fold{i}", (i, N_FOLDS)) for i in range(N_FOLDS))]
        ]


PRETRAINED_BASES: dict[str, Base] = {
    base.name: base for base in (ClassifierBase(), FeatureBase(), HeadBase())
}
# What a refiner of the paper refines: embeddings that were tuned on the classes that it learns from.
TUNED_BASES: dict[str, Base] = {
    loss: HeadBase(loss, loss) for loss in ("multi_similarity", "recall_at_k", "proxy_anchor")
}


def _prepare(
    images: str,
    parts: FeatureParts,
    train: tuple[Embeddings, Embeddings],
    calibration: Embeddings,
    test: Embeddings,
) -> Embedded:
    """With training embeddings as seen and as unseen."""
    return prepare(
        Trained(parts.train.labels, parts.train.class_ids % N_FOLDS, *train),
        (calibration, parts.calibration),
        (test, parts.test),
        most_kept=_MOST_KEPT.get(images),
        most_held=_MOST_HELD.get(images),
    )


def features_of(wanted: Wanted) -> FeatureParts:
    """Features of an image set, without the test classes that the study leaves out."""
    found = load_features(wanted.roots / wanted.images, wanted.work / "features", training_views=1)
    every = _TEST_CLASSES.get(wanted.images, 1)
    return dataclasses.replace(found, test=found.test.subset(found.test.class_ids % every == 0))


@functools.cache
def _directions(dim: int) -> Embeddings:
    return from_classifier(classifier_of(BACKBONE), dim).weight.T


def _head(run: Run, parts: FeatureParts, work: Path) -> Embeddings:
    path = work / "heads" / f"{run.key}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        head, _ = train(run, HEAD, parts.train)
        np.save(path, head.state_dict()["weight"].numpy().T)
    head: Embeddings = np.load(path)
    return head
