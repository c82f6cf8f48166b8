"""The one way from the service to `vicinal.training`, whose names are loaded when a command asks for them."""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vicinal.models.errors import MissingPackageError

if TYPE_CHECKING:
    from vicinal.training.backbones.backbone import BackboneConfig
    from vicinal.training.backbones.weights import PACKAGED_WEIGHTS
    from vicinal.training.card import write_card, write_notice
    from vicinal.training.datasets.layouts import DatasetConfig
    from vicinal.training.evaluation.config import RetrievalTest, load_tests, parse_test
    from vicinal.training.evaluation.measurement import measure_test, read_embeddings
    from vicinal.training.evaluation.metrics import scikit_metrics
    from vicinal.training.evaluation.report import EvaluationSettings, evaluate
    from vicinal.training.export.backbone import HeadConfig, export_backbone
    from vicinal.training.export.choice import give_form
    from vicinal.training.export.hub_model import HUB_MODELS, bundle_from_hub, hub_model
    from vicinal.training.export.ready import import_onnx
    from vicinal.training.export.sample import folder_sample
    from vicinal.training.observer import StepProgress, TrainingObserver
    from vicinal.training.recipe import Recipe, run_recipe
    from vicinal.training.refiner.config import RefinerRecipe
    from vicinal.training.refiner.embedding_set import EmbeddingSet, read_embedding_sets
    from vicinal.training.refiner.recipe import TrainedRefiner, embed_datasets, train_refiner
    from vicinal.training.refiner.trainer import RefinerTrainer, TrainingRecord
    from vicinal.training.trainer import Trainer

# The log of a run needs the last two.
_PACKAGES = ("torch", "timm", "pytorch_metric_learning", "matplotlib")
_PLACES = {
    "backbones.backbone": ("BackboneConfig",),
    "backbones.weights": ("PACKAGED_WEIGHTS",),
    "card": ("write_card", "write_notice"),
    "datasets.layouts": ("DatasetConfig",),
    "evaluation.config": ("RetrievalTest", "load_tests", "parse_test"),
    "evaluation.measurement": ("measure_test", "read_embeddings"),
    "evaluation.metrics": ("scikit_metrics",),
    "evaluation.report": ("EvaluationSettings", "evaluate"),
    "export.backbone": ("HeadConfig", "export_backbone"),
    "export.choice": ("give_form",),
    "export.hub_model": ("HUB_MODELS", "bundle_from_hub", "hub_model"),
    "export.ready": ("import_onnx",),
    "export.sample": ("folder_sample",),
    "observer": ("StepProgress", "TrainingObserver"),
    "recipe": ("Recipe", "run_recipe"),
    "refiner.config": ("RefinerRecipe",),
    "refiner.embedding_set": ("EmbeddingSet", "read_embedding_sets"),
    "refiner.recipe": ("TrainedRefiner", "embed_datasets", "train_refiner"),
    "refiner.trainer": ("RefinerTrainer", "TrainingRecord"),
    "trainer": ("Trainer",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"vicinal.training.{_MODULES[name]}"), name)


def require_train_extra(purpose: str) -> None:
    """Refuse `purpose`, before anything is read for it, where torch is not installed."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackageError(missing[0], "train", purpose)
