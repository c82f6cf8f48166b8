"""Training: a very small run learns, is logged, is reproducible, and keeps its classes apart."""

from __future__ import annotations

import copy
import csv
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from PIL import Image  # noqa: E402

from models import training  # noqa: E402
from models.backbone import EmbeddingNetwork, build_network  # noqa: E402
from models.config import BackboneConfig, TrainingConfig  # noqa: E402
from models.datasets import load_datasets  # noqa: E402
from models.errors import ConfigError, DatasetError  # noqa: E402
from models.evaluation import retrieval_metrics  # noqa: E402
from models.preprocessing import Preprocessing  # noqa: E402
from models.training import StepRecord, Trainer, TrainingResult, embed_images  # noqa: E402

MakeConfig = Callable[..., TrainingConfig]
SQUASHED = Preprocessing(input_size=32, fit="squash")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "training.csv"


@pytest.fixture(scope="module")
def published() -> list[tuple[StepRecord, int]]:
    return []


@pytest.fixture(scope="module")
def trained(
    make_training_config: MakeConfig, log: Path, published: list[tuple[StepRecord, int]]
) -> TrainingResult:
    """40 steps, enough to learn to tell colors apart."""
    config = make_training_config(
        optimizer={"steps": 40, "warmup_steps": 5, "learning_rate": 0.005}, validate_every=10
    )
    return Trainer(config, log=log, on_record=lambda *published_: published.append(published_)).run()


def _weights(result: TrainingResult) -> dict[str, torch.Tensor]:
    return result.network.state_dict()


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_loss_falls(trained: TrainingResult) -> None:
    losses = [record.loss for record in trained.records]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < 0.7 * losses[0]


def test_loss_does_not_fall_without_learning(make_training_config: MakeConfig) -> None:
    """Negative control: at a learning rate of next to nothing the same measure stays where it is."""
    optimizer = {"steps": 10, "warmup_steps": 0, "learning_rate": 1e-12}
    config = make_training_config(optimizer=optimizer, validate_every=5)
    losses = [record.loss for record in Trainer(config).run().records]
    assert losses[-1] > 0.7 * losses[0]


def test_trained_network_ranks_held_out_classes(trained: TrainingResult) -> None:
    """Three held-out classes of five: chance is a hit rate of 0.29."""
    assert trained.best.hit_rate_1 > 0.6


def test_validation_comes_every_so_many_steps_and_at_the_end(make_training_config: MakeConfig) -> None:
    config = make_training_config(optimizer={"steps": 5, "warmup_steps": 1}, validate_every=2)
    assert [record.step for record in Trainer(config).run().records] == [2, 4, 5]


def test_best_validation_is_kept(trained: TrainingResult) -> None:
    """The returned weights are those of the best record, not of the last step."""
    assert trained.best.map_at_r == max(record.map_at_r for record in trained.records)
    assert trained.best in trained.records


@pytest.mark.parametrize(
    ("scores", "best"), [((0.9, 0.5, 0.1), 0), ((0.1, 0.9, 0.5), 1), ((0.5, 0.5, 0.9), 2)]
)
def test_weights_are_those_of_the_best_validation(
    make_training_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...], best: int
) -> None:
    """Scores are dictated, and the weights at each validation are noted."""
    noted, upcoming = [], iter(scores)

    def dictated(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(hit_rate={1: 0.0}, map_at_r=next(upcoming))

    def noting(network: EmbeddingNetwork, *_: object) -> None:
        noted.append(copy.deepcopy(network.state_dict()))

    monkeypatch.setattr(training, "retrieval_metrics", dictated)
    monkeypatch.setattr(training, "embed_images", noting)
    result = Trainer(make_training_config(optimizer={"steps": 3, "warmup_steps": 0}, validate_every=1)).run()
    assert result.best.step == best + 1
    assert [_same(_weights(result), weights) for weights in noted] == [index == best for index in range(3)]


def test_kept_weights_repeat_the_best_validation(
    trained: TrainingResult, make_training_config: MakeConfig
) -> None:
    config = make_training_config()
    images = load_datasets(config.datasets, SQUASHED.model_copy(update={"input_size": 37}).resize)
    _, held = images.split_classes(config.validation_share, config.seed)
    embeddings = embed_images(trained.network, held.pixels, config.preprocessing)
    again = retrieval_metrics(embeddings, held.class_ids)
    assert again.map_at_r == pytest.approx(trained.best.map_at_r)


def test_every_record_is_one_line_of_the_log(trained: TrainingResult, log: Path) -> None:
    with log.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == ["step", "loss", "hit_rate_1", "map_at_r", "seconds"]
    assert [int(line["step"]) for line in lines] == [10, 20, 30, 40]
    assert [float(line["loss"]) for line in lines] == [record.loss for record in trained.records]


def test_every_record_is_published_with_the_number_of_steps(
    trained: TrainingResult, published: list[tuple[StepRecord, int]]
) -> None:
    assert published == [(record, 40) for record in trained.records]


def test_held_out_classes_are_not_trained_on(
    trained: TrainingResult, make_training_config: MakeConfig
) -> None:
    config = make_training_config()
    images = load_datasets(config.datasets, SQUASHED.resize)
    _, held = images.split_classes(config.validation_share, config.seed)
    assert len(set(held.labels)) == 3
    assert not set(trained.training.labels) & set(held.labels)
    assert set(trained.training.labels) | set(held.labels) == set(images.labels)


def test_same_seed_gives_the_same_weights(make_training_config: MakeConfig) -> None:
    torch.manual_seed(123)
    first = _weights(Trainer(make_training_config(seed=3)).run())
    torch.manual_seed(456)
    assert _same(first, _weights(Trainer(make_training_config(seed=3)).run()))
    assert not _same(first, _weights(Trainer(make_training_config(seed=4)).run()))


def test_run_without_validation_keeps_the_last_weights(make_training_config: MakeConfig) -> None:
    result = Trainer(make_training_config(validation_share=0.0)).run()
    assert len(set(result.training.labels)) == 12
    assert all(math.isnan(record.map_at_r) for record in result.records)
    assert result.best is result.records[-1]


def test_demo_catalog_can_be_trained_on(make_training_config: MakeConfig) -> None:
    catalog = {"kind": "demo_catalog", "seeds": [5], "products": 6, "views": 3}
    optimizer = {"steps": 2, "warmup_steps": 0}
    config = make_training_config(datasets=[catalog], optimizer=optimizer, validation_share=0.0)
    result = Trainer(config).run()
    assert len(set(result.training.labels)) == 6
    assert math.isfinite(result.best.loss)


def test_bfloat16_trains_to_finite_weights(make_training_config: MakeConfig) -> None:
    config = make_training_config(precision="bfloat16", optimizer={"steps": 2, "warmup_steps": 0})
    weights = _weights(Trainer(config).run())
    assert all(value.isfinite().all() for value in weights.values())


def test_learning_rate_warms_up_and_decays_to_zero(make_training_config: MakeConfig) -> None:
    trainer = Trainer(make_training_config(optimizer={"steps": 100, "warmup_steps": 10}))
    rates = [trainer._rate_at(step) for step in range(101)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert (rates[10], rates[55], rates[100]) == pytest.approx((1.0, 0.5, 0.0))


def test_batch_of_more_classes_than_there_are_is_refused(make_training_config: MakeConfig) -> None:
    config = make_training_config(sampler={"batch_size": 64, "per_class": 4})
    with pytest.raises(ConfigError, match="needs 16 classes, the data has 9"):
        Trainer(config).run()


def test_missing_data_set_is_refused(make_training_config: MakeConfig, tmp_path: Path) -> None:
    config = make_training_config(datasets=[{"kind": "folder", "root": tmp_path / "gone"}])
    with pytest.raises(DatasetError, match="gone"):
        Trainer(config).run()


def test_embedding_stored_images_equals_embedding_them_one_by_one(tiny_backbone: BackboneConfig) -> None:
    network = build_network(tiny_backbone).train()
    pixels = np.random.default_rng(0).integers(0, 256, (7, 40, 40, 3)).astype(np.uint8)
    embeddings = embed_images(network, pixels, SQUASHED, batch_size=3)
    assert not network.training
    for image, row in zip(pixels, embeddings, strict=True):
        tensor = torch.from_numpy(SQUASHED.to_tensor(Image.fromarray(image)))
        assert row == pytest.approx(network(tensor[None])[0].detach().numpy(), abs=1e-5)


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


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
def test_weights_that_cannot_be_started_from_are_refused(
    make_training_config: MakeConfig, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "weights.pt").write_bytes(content)
    with pytest.raises(ConfigError, match="start_from names"):
        Trainer(make_training_config(start_from=tmp_path / "weights.pt")).run()


GROUP = {"kind": "group", "m": 4, "n": 4}
PAIRS = {"kind": "random_pairs", "n_pairs": 8}
BALANCED = {"name": "balanced_contrastive", "arguments": {"margin": 4.0}}


@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize(
    ("sampler", "loss"),
    [
        ({"batch_size": 16, "classes_per_source": {"colors": 4}}, "contextual"),
        (GROUP, "contextual"),
        (GROUP, "recall_at_k"),
        (GROUP, BALANCED),
        (PAIRS, "smooth_ap"),
        (PAIRS, BALANCED),
    ],
)
def test_every_sampler_can_be_trained_with(
    make_training_config: MakeConfig, sampler: dict[str, Any], loss: Any, chunk_size: int | None
) -> None:
    config = make_training_config(
        sampler={**sampler, "chunk_size": chunk_size},
        loss=loss,
        optimizer={"steps": 2, "warmup_steps": 0},
    )
    assert math.isfinite(Trainer(config).run().records[-1].loss)


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
    result = Trainer(config).run()
    assert result.left_out == ["set:class01"]
    assert len(set(result.training.labels)) == 4
