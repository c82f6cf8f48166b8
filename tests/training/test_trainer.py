"""Training: a very small run learns, is logged, is reproducible, and keeps its classes apart."""

from __future__ import annotations

import copy
import csv
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training import validation  # noqa: E402
from vicinal.training.backbones.backbone import EmbeddingNetwork  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.observer import (  # noqa: E402
    StepProgress,
    StepRecord,
    TrainingObserver,
)
from vicinal.training.trainer import Trainer, TrainingResult  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_picture")

MakeConfig = Callable[..., TrainingConfig]


class Noting(TrainingObserver):
    """Notes all that it is told."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []
        self.steps: list[StepProgress] = []
        self.notices: list[str] = []

    def on_record(self, record: StepRecord) -> None:
        self.records.append(record)

    def on_step(self, progress: StepProgress) -> None:
        self.steps.append(progress)

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def noted() -> Noting:
    return Noting()


@pytest.fixture(scope="module")
def trained(make_training_config: MakeConfig, folder: Path, noted: Noting) -> TrainingResult:
    """40 steps, enough to learn to tell colors apart."""
    config = make_training_config(
        optimizer={"steps": 40, "warmup_steps": 5, "learning_rate": 0.005}, validate_every=10
    )
    return Trainer(config, folder=folder, observer=noted).run()


def _weights(result: TrainingResult) -> dict[str, torch.Tensor]:
    return result.network.state_dict()


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
def test_loss_falls(trained: TrainingResult) -> None:
    losses = [record.loss for record in trained.records]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < 0.79 * losses[0]


def test_weights_are_those_of_the_best_validation(
    make_training_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are dictated, and the weights at each validation are noted."""
    noted, upcoming = [], iter((0.1, 0.9, 0.5))

    def dictated(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(hit_rate={1: 0.0}, map_at_r=next(upcoming))

    def noting(network: EmbeddingNetwork, *_: object) -> None:
        noted.append(copy.deepcopy(network.state_dict()))

    monkeypatch.setattr(validation, "retrieval_metrics", dictated)
    monkeypatch.setattr("vicinal.training.trainer.embed_images", noting)
    result = Trainer(make_training_config(optimizer={"steps": 3, "warmup_steps": 0}, validate_every=1)).run()
    assert result.best.step == 2
    assert [_same(_weights(result), weights) for weights in noted] == [False, True, False]


@pytest.mark.slow
def test_every_record_is_one_line_of_the_log(trained: TrainingResult, folder: Path) -> None:
    with (folder / "training.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == ["step", "loss", "hit_rate_1", "map_at_r", "seconds"]
    assert [int(line["step"]) for line in lines] == [10, 20, 30, 40]
    assert [float(line["loss"]) for line in lines] == [record.loss for record in trained.records]


@pytest.mark.slow
def test_observer_learns_of_every_step(trained: TrainingResult, noted: Noting) -> None:
    assert [(one.step, one.n_steps) for one in noted.steps] == [(step, 40) for step in range(1, 41)]
    assert [one.latest for one in noted.steps[:10]] == [None] * 9 + trained.records[:1]
    assert all(math.isfinite(float(one.step_loss)) for one in noted.steps)


@pytest.mark.slow
def test_a_run_starts_from_the_weights_of_an_earlier_one(
    trained: TrainingResult, make_training_config: MakeConfig, tmp_path: Path
) -> None:
    """A single step at a learning rate of almost nothing leaves the weights where they were."""
    torch.save(trained.network.state_dict(), tmp_path / "weights.pt")
    config = make_training_config(
        start_from=tmp_path / "weights.pt",
        optimizer={"steps": 1, "warmup_steps": 0, "learning_rate": 1e-12},
    )
    head = Trainer(config).run().network.head.weight
    torch.testing.assert_close(head, trained.network.head.weight, rtol=0, atol=1e-6)


GROUP = {"kind": "group", "m": 4, "n": 4}
BALANCED = {"name": "balanced_contrastive", "arguments": {"margin": 4.0}}


def test_classes_too_small_for_the_sampler_are_left_out_and_named(
    make_training_config: MakeConfig, make_class_folders: Callable[..., Path], tmp_path: Path
) -> None:
    make_class_folders(tmp_path / "set", n_classes=5, per_class=3)
    for view in (1, 2):
        (tmp_path / "set" / "class01" / f"{view}.png").unlink()
    config = make_training_config(
        datasets=[{"kind": "folder", "root": tmp_path / "set"}],
        sampler={"batch_size": 8, "per_class": 2},
        optimizer={"steps": 1, "warmup_steps": 0},
        validation_share=0.0,
    )
    noted = Noting()
    result = Trainer(config, observer=noted).run()
    assert noted.notices == ["1 classes have fewer than 2 images and are left out: set:class01"]
    assert len(set(result.training.labels)) == 4


def test_unnormalized_embeddings_are_judged_by_euclidean_distance(
    make_training_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As their loss compares them, which is the base of a sum."""
    noted: list[str] = []
    monkeypatch.setattr(
        "vicinal.training.trainer.validate", lambda *given: (noted.append(given[2]), (0.0, 0.0))[1]
    )
    normalized = {**BALANCED, "arguments": {"margin": 1.0, "normalize": True}}
    for loss in ({**BALANCED, "add": ["mean_similarity"]}, normalized, "multi_similarity"):
        config = make_training_config(sampler=GROUP, loss=loss, optimizer={"steps": 1, "warmup_steps": 0})
        Trainer(config).run()
    assert noted == ["euclidean", "cosine", "cosine"]


@pytest.mark.slow
def test_convolutions_run_channels_last(
    make_training_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and images, in every step; the other layout trains the same weights."""
    sampler = {"batch_size": 16, "per_class": 4, "chunk_size": 6}
    config = make_training_config(sampler=sampler, optimizer={"steps": 3, "name": "sgd"})
    own, layouts = EmbeddingNetwork.forward, []

    def noting(network: EmbeddingNetwork, images: torch.Tensor) -> torch.Tensor:
        both = (network.trunk.conv1.weight, images)
        layouts.append({one.is_contiguous(memory_format=torch.channels_last) for one in both})
        return own(network, images)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingNetwork, "forward", noting)
        last = Trainer(config).run().network.state_dict()
    # The first input is the one that is tried.
    assert all(layout == {True} for layout in layouts[1:])
    monkeypatch.setattr("torch.channels_last", torch.contiguous_format)
    first = Trainer(config).run().network
    assert first.trunk.conv1.weight.is_contiguous()
    for name, value in first.state_dict().items():
        torch.testing.assert_close(last[name], value, rtol=1e-4, atol=1e-5)


def test_input_that_the_backbone_cannot_take_is_refused(make_training_config: MakeConfig) -> None:
    """A transformer has positions for one size of image."""
    backbone = {"name": "vit_tiny_patch16_224", "pooling": "native", "arguments": {"depth": 1}}
    with pytest.raises(ConfigError, match=r"'vit_tiny_patch16_224' cannot take images of 32 px .*input_size"):
        Trainer(make_training_config(backbone=backbone)).run()
