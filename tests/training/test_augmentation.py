"""Augmentation: what is drawn follows from seed, step and place alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from vicinal.models.bundle import Preprocessing  # noqa: E402
from vicinal.training.augmentation import AugmentedImages, stored_size, training_batches  # noqa: E402
from vicinal.training.config import AugmentationConfig, TrainingConfig  # noqa: E402
from vicinal.training.datasets import LabelledImages  # noqa: E402

PREPROCESSING = Preprocessing(input_size=24)
NOTHING = AugmentationConfig(smallest_crop=1.0, degrees=0, jitter=0, hue=0, erase=0)


def _images(n_images: int = 24) -> LabelledImages:
    pixels = np.random.default_rng(0).integers(0, 256, (n_images, 28, 28, 3)).astype(np.uint8)
    labels = np.array([f"set:{position // 4}" for position in range(n_images)])
    return LabelledImages(pixels, labels, np.full(n_images, "train"))


def _augmented(seed: int = 0, config: AugmentationConfig | None = None) -> AugmentedImages:
    return AugmentedImages(_images(), PREPROCESSING, config or AugmentationConfig(), seed=seed)


def test_the_same_draw_gives_the_same_pixels() -> None:
    torch.manual_seed(1)
    first = _augmented()[3, 5, 7][0]
    torch.manual_seed(2)
    assert torch.equal(first, _augmented()[3, 5, 7][0])


@pytest.mark.parametrize("draw", [(4, 5, 7), (3, 6, 7), (5, 3, 7)])
def test_another_step_or_place_changes_the_image_otherwise(draw: tuple[int, int, int]) -> None:
    assert not torch.equal(_augmented()[3, 5, 7][0], _augmented()[draw][0])


@pytest.mark.parametrize(("fill", "level"), [("white", 1.0), ("black", 0.0)])
def test_turning_uncovers_the_ground_that_was_asked_for(fill: str, level: float) -> None:
    """Corners of gray pictures; `black` is zero padding."""
    gray = LabelledImages(np.full((1, 28, 28, 3), 128, np.uint8), np.array(["set:a"]), np.array(["train"]))
    turned = NOTHING.model_copy(update={"degrees": 45.0, "fill": fill})
    images = AugmentedImages(gray, PREPROCESSING, turned, seed=0)
    ground = (level - np.array(PREPROCESSING.mean)) / np.array(PREPROCESSING.std)
    corners = np.array([images[step, 0, 0][0][:, 0, 0].numpy() for step in range(12)])
    assert np.abs(corners - ground).max(axis=1).min() < 0.05


def test_crops_of_the_original_keep_its_ratio_and_its_pixels() -> None:
    """A wide image stays wide, and the smallest crop has the pixels of the input; fitted, it is square."""
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 240, 3)).astype(np.uint8))
    fit, side = stored_size(PREPROCESSING, AugmentationConfig())
    assert (fit(wide).size, side) == ((28, 28), None)
    fit, side = stored_size(PREPROCESSING, AugmentationConfig(smallest_crop=0.16, crop_from="original"))
    assert fit(wide) == wide
    assert side is not None
    assert side**2 * 0.16 / 1.25 >= 24**2 > (side - 1) ** 2 * 0.16 / 1.25


@pytest.fixture
def config(make_training_config: Callable[..., TrainingConfig]) -> TrainingConfig:
    return make_training_config(
        preprocessing=PREPROCESSING, sampler={"batch_size": 8, "per_class": 2}, optimizer={"steps": 5}
    )


def test_batches_from_a_step_on_are_those_of_the_whole_run(config: TrainingConfig) -> None:
    whole = list(training_batches(_images(), config))
    rest = list(training_batches(_images(), config, first_step=3))
    assert (len(whole), len(rest)) == (5, 2)
    for (pixels, labels), (expected, expected_labels) in zip(rest, whole[3:], strict=True):
        assert torch.equal(pixels, expected)
        assert torch.equal(labels, expected_labels)
