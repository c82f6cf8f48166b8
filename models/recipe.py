"""Recipe: train a network as a configuration says, export it, measure it, and write its card (torch)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.bundle import ModelBundle
from models.config import TrainingConfig
from models.datasets import LabelledImages
from models.embedder import Embedder
from models.export import export_network
from models.retrieval_test import measure
from models.training import StepRecord, Trainer

__all__ = ["bundle_fields", "finish_bundle", "run_recipe", "write_card"]


def run_recipe(
    recipe: Path,
    output: Path,
    *,
    data_root: Path | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> ModelBundle:
    """Train, export, measure on the recipe's tests, and write the model card.

    Args:
        recipe: TOML file; a copy of it goes into the bundle.
        output: Directory of the bundle; `weights.pt` is kept beside it for a recipe that starts from it.
        data_root: Folder that relative data set paths start from.
        on_step: Called at each validation with the step and all steps.

    Raises:
        ConfigError: The recipe cannot work.
        DatasetError: A data set is missing.
    """
    config = TrainingConfig.load(recipe, data_root=data_root)
    output.mkdir(parents=True, exist_ok=True)
    log = output / "training.csv"
    log.unlink(missing_ok=True)
    report = on_step or (lambda _done, _total: None)
    trainer = Trainer(config, log=log, on_record=lambda record, total: report(record.step, total))
    result = trainer.run()
    torch.save(result.network.state_dict(), output / "weights.pt")
    fields = bundle_fields(config, result.training, result.best)
    bundle = export_network(result.network, output, fields)
    shutil.copyfile(recipe, output / "recipe.toml")
    return finish_bundle(bundle, config, fields)


def finish_bundle(bundle: ModelBundle, config: TrainingConfig, fields: dict[str, Any]) -> ModelBundle:
    """Measure an exported bundle on the recipe's tests, and write metrics and card into it."""
    embedder = Embedder(bundle, device="cpu")
    metrics = {test.name: measure(embedder, test) for test in config.tests}
    finished = ModelBundle.write(bundle.path, {**fields, "dim": bundle.dim, "metrics": metrics})
    write_card(finished)
    return finished


def bundle_fields(config: TrainingConfig, training: LabelledImages, best: StepRecord) -> dict[str, Any]:
    """Manifest fields that follow from the recipe and the training run."""
    return {
        "name": config.name,
        "backbone": config.backbone.name,
        "preprocessing": config.preprocessing.model_dump(),
        "licence": config.licence,
        "labels_sha256": training.labels_sha256,
        "training": {
            "datasets": [_describe(dataset) for dataset in config.datasets],
            "images": len(training.labels),
            "classes": len(np.unique(training.labels)),
            "loss": config.loss.name,
            "steps": config.optimizer.steps,
            "best_step": best.step,
            "batch_size": config.sampler.batch_size,
            "seed": config.seed,
        },
    }


def write_card(bundle: ModelBundle) -> None:
    """Write `MODEL_CARD.md` from the manifest."""
    manifest = bundle.manifest
    training = manifest.training
    lines = [
        f"# {manifest.name}",
        "",
        f"{manifest.backbone}, {manifest.preprocessing.input_size} px, {manifest.dim}-d embeddings, "
        f"licence {manifest.licence}, fingerprint `{manifest.fingerprint}`.",
        "",
        "A small embedding for a first try without a network. For your own photos, export a pretrained "
        "backbone with `vicinal export`, or train one with `vicinal train`.",
        "",
        f"Trained on {training['images']:,} images of {training['classes']:,} classes with the "
        f"{training['loss']} loss, {training['best_step']} steps of {training['batch_size']} images:",
        "",
        *[f"- {dataset}" for dataset in training["datasets"]],
        "",
        "Measured on classes that training never saw (cosine similarity, no re-ranking):",
        "",
        "| test | hit rate R@1 | MAP@R | AUROC, with against without mate | gallery | queries | absent |",
        "|---|---|---|---|---|---|---|",
        *[_card_row(name, metrics) for name, metrics in manifest.metrics.items()],
        "",
        "The recipe is `recipe.toml` beside this file, its learning curve `training.csv`.",
    ]
    (bundle.path / "MODEL_CARD.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _describe(dataset: Any) -> str:
    if dataset.kind == "demo_catalog":
        return f"synthetic products, {len(dataset.seeds)} catalogs of {dataset.products}"
    return f"{dataset.root.name}, {getattr(dataset, 'split', 'all')} classes"


def _card_row(name: str, metrics: dict[str, float]) -> str:
    auroc_text = f"{metrics['auroc']:.3f}" if "auroc" in metrics else "-"
    counts = [f"{metrics.get(key, 0):,.0f}" for key in ("n_gallery", "n_queries", "n_absent")]
    shown = [f"{metrics['hit_rate_1']:.3f}", f"{metrics['map_at_r']:.3f}", auroc_text, *counts]
    return f"| {name} | {' | '.join(shown)} |"
