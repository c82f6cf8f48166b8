"""Recipe: train a network as a configuration says, export it, measure it, and write its card (torch)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vicinal.calibration.advice import advise
from vicinal.models.bundle import BACKBONE_FILE, MANIFEST_FILE, ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import ConfigError
from vicinal.models.probe import PROBE_FILE, write_probe
from vicinal.training.card import write_card, write_notice
from vicinal.training.checkpoint import CHECKPOINT_FILE
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets import list_images
from vicinal.training.evaluation.measurement import manifest_metrics
from vicinal.training.export.choice import give_form
from vicinal.training.export.network import export_network
from vicinal.training.export.sample import Sample
from vicinal.training.log import CSV_FILE, CURVES_FILE
from vicinal.training.observer import TrainingObserver
from vicinal.training.trainer import Trainer, TrainingResult

Start = Literal["new", "resume", "overwrite"]
_RUN_FILES = (
    MANIFEST_FILE,
    CHECKPOINT_FILE,
    CSV_FILE,
    CURVES_FILE,
    BACKBONE_FILE,
    "weights.pt",
    "recipe.toml",
    "MODEL_CARD.md",
    PROBE_FILE,
)


@dataclass(frozen=True)
class Recipe:
    """A training configuration and the TOML it was read from, with changes in a comment at its head."""

    config: TrainingConfig
    text: str

    @classmethod
    def load(cls, path: Path, *, data_root: Path | None = None, settings: Sequence[str] = ()) -> Recipe:
        """Read a TOML file; see `TrainingConfig.load`."""
        config = TrainingConfig.load(path, data_root=data_root, settings=settings)
        head = "".join(f"# trained with --set {shlex.quote(setting)}\n" for setting in settings)
        return cls(config, head + path.read_text(encoding="utf-8"))


def run_recipe(
    recipe: Recipe,
    output: Path,
    *,
    start: Start = "new",
    device: str = "auto",
    observer: TrainingObserver | None = None,
) -> ModelBundle:
    """Train, export, measure on the recipe's tests, and write the model card.

    Log, curves, checkpoint and `weights.pt` (for a recipe that starts from it) are kept beside the bundle in
    `output`. `new` refuses a directory that holds a run, `resume` goes on from its checkpoint, `overwrite`
    deletes it first. The device is `auto`, `cpu`, `cuda` or `cuda:<number>`.
    """
    trainer = Trainer(recipe.config, folder=output, device=device, observer=observer)
    _prepare(output, start)
    result = trainer.run(resume=start == "resume")
    torch.save(result.network.state_dict(), output / "weights.pt")
    fields = _bundle_fields(recipe.config, result)
    bundle = export_network(result.network, output, fields)
    if recipe.config.form != "float32":
        sample = Sample(list_images(recipe.config.datasets[0]), is_labelled=True)
        bundle = give_form(bundle, recipe.config.form, sample)
    (output / "recipe.toml").write_text(recipe.text, encoding="utf-8")
    embedder = Embedder(bundle, device="cpu")
    metrics = {test.name: manifest_metrics(embedder, test) for test in recipe.config.tests}
    manifest = bundle.manifest.model_dump(exclude={"files", "refiner"})
    finished = ModelBundle.write(bundle.path, {**manifest, "metrics": metrics})
    write_notice(finished)
    write_card(finished)
    write_probe(finished)
    return finished


def _prepare(output: Path, start: Start) -> None:
    found = [name for name in _RUN_FILES if (output / name).exists()]
    if found and start == "new":
        raise ConfigError(
            f"'{output}' already holds a run ({found[0]}): ",
            advise("go on with {resume}, delete it with {overwrite}, or write elsewhere"),
        )
    output.mkdir(parents=True, exist_ok=True)
    if start == "overwrite":
        for name in found:
            (output / name).unlink()


def _bundle_fields(config: TrainingConfig, result: TrainingResult) -> dict[str, Any]:
    """Manifest fields that follow from the recipe and the training run."""
    training, preprocessing = result.training, config.preprocessing.model_dump()
    if config.served_size is not None:
        preprocessing["input_size"] = config.served_size
    return {
        "name": config.name,
        "backbone": config.backbone.name,
        "preprocessing": preprocessing,
        "licence": config.licence,
        "source": config.source,
        "labels_sha256": training.labels_sha256,
        "training": {
            "datasets": [_describe(dataset) for dataset in config.datasets],
            "images": len(training.labels),
            "classes": len(np.unique(training.labels)),
            "loss": " + ".join([config.loss.name, *(one.name for one in config.loss.add)]),
            "steps": config.optimizer.steps,
            "best_step": result.best.step,
            "share": config.interpolate or 1.0,
            "batch_size": config.sampler.batch_size,
            "seed": config.seed,
        },
    }


def _describe(dataset: Any) -> str:
    if dataset.kind == "demo_catalog":
        return f"synthetic products, {len(dataset.seeds)} catalogs of {dataset.products}"
    return f"{dataset.root.name}, {getattr(dataset, 'split', None) or 'all'} classes"
