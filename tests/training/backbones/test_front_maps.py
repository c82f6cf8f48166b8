"""Training on maps of a frozen front: the same run however often it is stopped, and no more than the back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.errors import TrainingStoppedError  # noqa: E402
from vicinal.training.backbones.backbone import build_network  # noqa: E402
from vicinal.training.backbones.front_maps import FrontMaps, make_maps  # noqa: E402
from vicinal.training.backbones.frozen_front import CutNetwork  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.datasets import load_labels, opened_images  # noqa: E402
from vicinal.training.observer import StepProgress, TrainingObserver  # noqa: E402
from vicinal.training.trainer import Trainer  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]

BACKBONE = {
    "name": "plain_conv_net",
    "arguments": {"channels": [8, 8, 16]},
    "dim": 8,
    "frozen_stages": 1,
}
IDENTITY = {"labels_sha256": "0"}
MakeConfig = Callable[..., TrainingConfig]


@pytest.fixture
def config(make_training_config: MakeConfig) -> TrainingConfig:
    return make_training_config(backbone=BACKBONE, augmentation={"views": 3})


class Stopping(TrainingObserver):
    """Stops after so many images or steps."""

    def __init__(self, *, views: int = 10**9, steps: int = 10**9) -> None:
        self.views, self.steps, self.stops = views, steps, False
        self.seen: list[int] = []

    def on_views(self, done: int, _total: int) -> None:
        self.seen.append(done)
        self.stops = self.stops or done == self.views

    def on_step(self, progress: StepProgress) -> None:
        self.stops = self.stops or progress.step == self.steps

    def should_stop(self) -> bool:
        return self.stops


def cut(config: TrainingConfig) -> CutNetwork:
    torch.manual_seed(0)
    network = build_network(config.backbone)
    return CutNetwork(network, config.backbone.frozen_stages, config.preprocessing.input_size)


def maps_of(config: TrainingConfig, folder: Path, observer: TrainingObserver | None = None) -> FrontMaps:
    training, held_out = load_labels(config.datasets).split_classes(config.validation_share, config.seed)
    made = make_maps(
        folder,
        cut(config),
        training,
        held_out,
        config,
        identity=IDENTITY,
        observer=observer or TrainingObserver(),
    )
    assert (len(made.training), len(made.held_out)) == (len(training.labels), len(held_out.labels))
    return made


def weights_of(config: TrainingConfig, folder: Path | None = None, **run: Any) -> dict[str, Any]:
    return Trainer(config, folder=folder).run(**run).network.state_dict()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_unchanged_views_are_what_the_front_gives_for_the_image(
    config: TrainingConfig, tmp_path: Path
) -> None:
    made = maps_of(config, tmp_path)
    training, _ = load_labels(config.datasets).split_classes(config.validation_share, config.seed)
    with opened_images(config.datasets) as read:
        image = config.preprocessing.to_tensor(read(int(training.positions[5])))
    with torch.inference_mode():
        expected = cut(config).front.eval()(torch.from_numpy(image[None]))[0].numpy()
    np.testing.assert_allclose(made.training[5], expected, atol=2e-3)
    np.testing.assert_array_equal(made.rows[15], made.training[5])
    assert not np.array_equal(made.rows[16], made.rows[15])


@pytest.mark.parametrize("stop", [{"views": 11}, {"steps": 2}, {"steps": 4}])
def test_a_resumed_run_ends_bit_for_bit_as_one_that_was_never_stopped(
    config: TrainingConfig, tmp_path: Path, stop: dict[str, int]
) -> None:
    with pytest.raises(TrainingStoppedError):
        Trainer(config, folder=tmp_path, observer=Stopping(**stop)).run()
    assert same(weights_of(config, tmp_path, resume=True), weights_of(config))
