"""Augmentation: random changes of training images that follow from seed, step and place alone (torch)."""

from __future__ import annotations

import math
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms import v2

from vicinal.models.bundle import Preprocessing
from vicinal.models.errors import DatasetError
from vicinal.training.config import AugmentationConfig, TrainingConfig
from vicinal.training.datasets import LabelledImages
from vicinal.training.datasets.stored_pixels import StoredPixels
from vicinal.training.samplers import Batches

# Step, place in the batch, position of the image.
Draw = tuple[int, int, int]
_STORED_PER_INPUT = 1.15
# Width over height of a crop.
_RATIOS = (0.8, 1.25)
# The transforms know the global generator only.
_GENERATOR_IN_USE = Lock()


def training_batches(
    images: LabelledImages,
    config: TrainingConfig,
    *,
    first_step: int = 0,
    pin_memory: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Augmented batches of a run, the same for any number of workers, from whichever step on.

    Each is (b, 3, S, S) float32 standardized pixels and (b,) int64 labels. Batches of steps before
    `first_step` are drawn, but not loaded.
    """
    groups = images.super_labels if config.sampler.kind == "hierarchical" else images.sources
    steps, seed = config.optimizer.steps, config.seed
    batches = config.sampler.batches(images.labels, groups, n_batches=steps, seed=seed)
    draws = _draws(batches, first_step)
    if isinstance(images.pixels, StoredPixels) and not config.workers:
        draws = _expected(draws, images.pixels)
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        AugmentedImages(images, config.preprocessing, config.augmentation, seed=seed),
        batch_sampler=draws,
        num_workers=config.workers,
        pin_memory=pin_memory,
        worker_init_fn=_ignore_interrupt,
        collate_fn=_together,
        # Without one of its own the loader would draw from the generator of dropout.
        generator=torch.Generator(),
    )
    with warnings.catch_warnings():
        # Workers are forked, so that they share the pixels; they open no gallery.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        loaded = iter(loader)
    for batch in loaded:
        if isinstance(batch, DatasetError):
            raise batch
        yield batch


class AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Training images, changed at random whenever they are drawn."""

    def __init__(
        self, images: LabelledImages, preprocessing: Preprocessing, config: AugmentationConfig, *, seed: int
    ) -> None:
        self.pixels = images.pixels
        self.class_ids = images.class_ids
        self.seed = seed
        self.transform = augmentation(preprocessing, config)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        """(3, S, S) float32 pixels and label of one drawn image."""
        step, place, position = draw
        image = torch.from_numpy(self.pixels[position]).permute(2, 0, 1)
        pixels = changed(image, self.transform, seed_of(self.seed, step, place))
        return pixels, int(self.class_ids[position])

    def __getitems__(self, draws: Sequence[Draw]) -> list[tuple[Tensor, int]] | DatasetError:
        # What a worker raises would come with its traceback among the words.
        try:
            return [self[draw] for draw in draws]
        except DatasetError as error:
            return error


def changed(image: Tensor, transform: nn.Module, seed: int) -> Tensor:
    """A (3, H, W) uint8 image after a random transform that follows from the seed alone."""
    # The network's dropout must not notice.
    with _GENERATOR_IN_USE, torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        augmented: Tensor = transform(image)
        return augmented


def stored_size(
    preprocessing: Preprocessing, config: AugmentationConfig
) -> tuple[Callable[[Image.Image], Image.Image], int | None]:
    """Fit of an image before it is augmented, and the `target_side` that it is decoded for.

    Fitted it is larger than the input, so that a crop has pixels left; an original stays as it is.
    """
    if config.crop_from == "original":
        # The shorter side of the smallest and narrowest crop has as many pixels as the input.
        longest = max(_RATIOS) / config.smallest_crop
        return _whole, math.ceil(preprocessing.input_size * math.sqrt(longest))
    side = round(preprocessing.input_size * _STORED_PER_INPUT)
    return preprocessing.model_copy(update={"input_size": side}).resize, None


def _whole(image: Image.Image) -> Image.Image:
    return image


def augmentation(preprocessing: Preprocessing, config: AugmentationConfig) -> nn.Module:
    """Random changes of a (3, H, W) uint8 image, then standardization to (3, S, S) float32."""
    side = preprocessing.input_size
    steps: list[nn.Module] = [
        v2.RandomAffine(config.degrees, fill=255 if config.fill == "white" else 0),
        v2.RandomResizedCrop(side, scale=(config.smallest_crop, 1.0), ratio=_RATIOS, antialias=True),
        v2.ColorJitter(config.jitter, config.jitter, config.jitter, config.hue),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(preprocessing.mean), list(preprocessing.std)),
        v2.RandomErasing(config.erase, scale=(0.02, 0.15)),
    ]
    if config.flip:
        steps.insert(0, v2.RandomHorizontalFlip())
    return v2.Compose(steps)


def _draws(batches: Batches, first_step: int) -> Iterator[list[Draw]]:
    """The batches with the step and the place of each image, from a step on."""
    for step, batch in islice(enumerate(batches), first_step, None):
        yield [(step, place, position) for place, position in enumerate(batch)]


def _expected(draws: Iterator[list[Draw]], pixels: StoredPixels) -> Iterator[list[Draw]]:
    """The same draws; the images of each are decoded while those of the one before are trained on."""
    waiting: deque[list[Draw]] = deque()
    for following in draws:
        pixels.expect([position for _, _, position in following])
        waiting.append(following)
        if len(waiting) > 1:
            yield waiting.popleft()
    yield from waiting


def _together(drawn: list[tuple[Tensor, int]] | DatasetError) -> Any:
    return drawn if isinstance(drawn, DatasetError) else default_collate(drawn)


def seed_of(*parts: int) -> int:
    """A seed that follows from numbers of 0 or more."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _ignore_interrupt(_worker: int) -> None:
    # Ctrl-C reaches every process of a terminal; the training process ends its workers in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
