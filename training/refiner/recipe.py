"""Refiner recipe: embed what it names, train a refiner on it, and put that into a bundle (torch)."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.models.bundle import ModelBundle, read_fingerprint
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.card import write_card
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.evaluation.measurement import embed_files
from vicinal.training.refiner.config import RefinerRecipe
from vicinal.training.refiner.cross_fitting import PresentLine, cross_fit
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.export import export_refiner
from vicinal.training.refiner.trainer import RefinerTrainer, TrainingResult


@dataclass(frozen=True)
class TrainedRefiner:
    """A bundle with its new refiner, and notes, one line each, on what to know of the figures."""

    bundle: ModelBundle
    result: TrainingResult
    notes: tuple[str, ...]


def embed_datasets(
    embedder: Embedder,
    datasets: Sequence[DatasetConfig],
    *,
    on_progress: OnProgress = no_progress,
) -> EmbeddingSet:
    """Embed every image of the data sets, of which there is at least one."""
    sets = []
    for config in datasets:
        listing = list_images(config)
        report = _named(listing.name, on_progress)
        embeddings = embed_files(embedder, listing, on_progress=report)
        sets.append(EmbeddingSet.of(embeddings, listing.labels))
    joined = EmbeddingSet.join(sets)
    # One backbone makes one space, however many data sets it is shown.
    return EmbeddingSet.of(joined.embeddings, joined.labels)


def train_refiner(
    bundle: ModelBundle,
    recipe: RefinerRecipe,
    items: EmbeddingSet,
    held_out: EmbeddingSet | None = None,
    *,
    output: Path | None = None,
    trainer: RefinerTrainer | None = None,
) -> TrainedRefiner:
    """Train a refiner and put it into a bundle, in place of one that it may have, or into a copy at `output`.

    Without `held_out` embeddings of other classes to validate on, classes are dealt into folds, or a share of
    them is held out, as the recipe says. A bundle that is at `output` is replaced.
    """
    for one in (items, held_out):
        if one is not None and one.dim != bundle.dim:
            advice = (
                "give those of this space" if bundle.manifest.space else "embed the images with this bundle"
            )
            raise RefinerTrainingError(
                f"the embeddings have {one.dim} dimensions, bundle '{bundle.name}' makes {bundle.dim}: "
                f"{advice}"
            )
    if recipe.datasets and held_out is not None:
        # Labels of data sets name the set as well, so that equal ones are the same class.
        shared = np.intersect1d(items.labels, held_out.labels)
        if len(shared):
            raise RefinerTrainingError(
                f"{len(shared)} classes are trained and validated on, the first is '{shared[0]}': "
                "give other classes as validation_datasets"
            )
    trainer = trainer or RefinerTrainer(recipe)
    if held_out is None and recipe.validation.folds:
        judged_on = "its own classes, each held out once"
        result = cross_fit(trainer, items, PresentLine.of(bundle))
    else:
        judged_on = "a part of its classes, held out" if held_out is None else "other classes"
        result = trainer.run(items, held_out)
    figures = result.verdict.figures | {
        f"gain_over_{name}": gain.flat() for name, gain in result.gains.items()
    }
    fields = {
        "sides": result.verdict.sides,
        "rerank": result.verdict.rerank,
        "validation": {
            part: {name: round(value, 6) for name, value in one.items()} for part, one in figures.items()
        },
        "training": {**_training_fields(recipe, result), "judged_on": judged_on},
    }
    target = bundle if output is None else _copied(bundle, output)
    finished = export_refiner(result.network, target, fields)
    write_card(finished)
    return TrainedRefiner(finished, result, tuple(_notes(bundle, items, held_out)))


def _copied(bundle: ModelBundle, output: Path) -> ModelBundle:
    there = read_fingerprint(output)
    if there == bundle.fingerprint:
        # A service may be reading it: the refiner alone is replaced.
        return ModelBundle.open(output)
    if there is not None:
        shutil.rmtree(output)
    if bundle.manifest.space:
        output.mkdir(parents=True, exist_ok=True)
        return ModelBundle.write(output, bundle.manifest.model_dump())
    return ModelBundle.open(shutil.copytree(bundle.path, output))


def _training_fields(recipe: RefinerRecipe, result: TrainingResult) -> dict[str, Any]:
    return {
        "datasets": [one.name for one in recipe.datasets],
        "validation_datasets": [one.name for one in recipe.validation_datasets],
        "items": result.n_items,
        "classes": result.n_classes,
        "best_step": result.best.step,
        "curve": [
            {
                "step": one.step,
                "loss": None if math.isnan(one.loss) else round(one.loss, 6),
                **{
                    f"{name}_{sides}": round(value, 6)
                    for sides, figures in one.figures.items()
                    for name, value in asdict(figures).items()
                },
            }
            for one in result.records
        ],
        "recipe": recipe.model_dump(mode="json", exclude={"datasets", "validation_datasets"}),
    }


def _notes(bundle: ModelBundle, items: EmbeddingSet, held_out: EmbeddingSet | None) -> list[str]:
    names = sorted({*items.labels})
    if hashlib.sha256("\n".join(names).encode()).hexdigest() != bundle.manifest.labels_sha256:
        return []
    notes = [
        "the backbone was trained on these classes, whose items lie closer together than those of new ones: "
        "embeddings of classes that it never saw train a better refiner"
    ]
    if held_out is None:
        notes.append("it was validated on such classes as well: give others to get a verdict that holds")
    return notes


def _named(name: str, report: OnProgress) -> OnProgress:
    return lambda _stage, done, total, *_: report(name, done, total)
