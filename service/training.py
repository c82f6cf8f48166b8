"""The one way from the service to `vicinal.training`, whose names are loaded when a command asks for them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vicinal.models.errors import MissingPackageError

if TYPE_CHECKING:
    from vicinal.training.backbones.backbone import BackboneConfig as BackboneConfig
    from vicinal.training.backbones.weights import PACKAGED_WEIGHTS as PACKAGED_WEIGHTS
    from vicinal.training.card import write_card as write_card
    from vicinal.training.card import write_notice as write_notice
    from vicinal.training.datasets.layouts import DatasetConfig as DatasetConfig
    from vicinal.training.evaluation.config import RetrievalTest as RetrievalTest
    from vicinal.training.evaluation.config import load_tests as load_tests
    from vicinal.training.evaluation.config import parse_test as parse_test
    from vicinal.training.evaluation.embedding import read_embeddings as read_embeddings
    from vicinal.training.evaluation.measurement import measure_test as measure_test
    from vicinal.training.evaluation.metrics import scikit_metrics as scikit_metrics
    from vicinal.training.evaluation.report import EvaluationSettings as EvaluationSettings
    from vicinal.training.evaluation.report import evaluate as evaluate
    from vicinal.training.execution.processes import Processes as Processes
    from vicinal.training.execution.processes import joined_processes as joined_processes
    from vicinal.training.export.backbone import HeadConfig as HeadConfig
    from vicinal.training.export.backbone import export_backbone as export_backbone
    from vicinal.training.export.choice import give_form as give_form
    from vicinal.training.export.ready import import_onnx as import_onnx
    from vicinal.training.export.sample import folder_sample as folder_sample
    from vicinal.training.fitting.labelled_images import LabelledImages as LabelledImages
    from vicinal.training.fitting.labelled_images import Split as Split
    from vicinal.training.fitting.labelled_images import UnusableImage as UnusableImage
    from vicinal.training.fitting.report import FitReport as FitReport
    from vicinal.training.fitting.run import PLAN_FILE as PLAN_FILE
    from vicinal.training.fitting.run import Fitting as Fitting
    from vicinal.training.observer import StepProgress as StepProgress
    from vicinal.training.observer import TrainingObserver as TrainingObserver
    from vicinal.training.recipe import Recipe as Recipe
    from vicinal.training.recipe import run_recipe as run_recipe
    from vicinal.training.recipe import take_part as take_part
    from vicinal.training.refiner.config import RefinerRecipe as RefinerRecipe
    from vicinal.training.refiner.embedding_set import EmbeddingSet as EmbeddingSet
    from vicinal.training.refiner.embedding_set import read_embedding_sets as read_embedding_sets
    from vicinal.training.refiner.recipe import TrainedRefiner as TrainedRefiner
    from vicinal.training.refiner.recipe import embed_datasets as embed_datasets
    from vicinal.training.refiner.recipe import train_refiner as train_refiner
    from vicinal.training.refiner.trainer import RefinerTrainer as RefinerTrainer
    from vicinal.training.refiner.trainer import TrainingRecord as TrainingRecord

# The log of a run needs the last two.
_PACKAGES = ("torch", "timm", "pytorch_metric_learning", "matplotlib", "tensorboard")
_PLACES = {
    "backbones.backbone": ("BackboneConfig",),
    "backbones.weights": ("PACKAGED_WEIGHTS",),
    "card": ("write_card", "write_notice"),
    "datasets.layouts": ("DatasetConfig",),
    "evaluation.config": ("RetrievalTest", "load_tests", "parse_test"),
    "evaluation.embedding": ("read_embeddings",),
    "evaluation.measurement": ("measure_test",),
    "evaluation.metrics": ("scikit_metrics",),
    "evaluation.report": ("EvaluationSettings", "evaluate"),
    "execution.processes": ("Processes", "joined_processes"),
    "export.backbone": ("HeadConfig", "export_backbone"),
    "export.choice": ("give_form",),
    "export.ready": ("import_onnx",),
    "export.sample": ("folder_sample",),
    "fitting.labelled_images": ("LabelledImages", "Split", "UnusableImage"),
    "fitting.report": ("FitReport",),
    "fitting.run": ("PLAN_FILE", "Fitting"),
    "observer": ("StepProgress", "TrainingObserver"),
    "recipe": ("Recipe", "run_recipe", "take_part"),
    "refiner.config": ("RefinerRecipe",),
    "refiner.embedding_set": ("EmbeddingSet", "read_embedding_sets"),
    "refiner.recipe": ("TrainedRefiner", "embed_datasets", "train_refiner"),
    "refiner.trainer": ("RefinerTrainer", "TrainingRecord"),
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
