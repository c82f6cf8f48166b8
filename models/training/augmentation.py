"""Augmentation: random changes of training images that follow from seed, step and place alone (torch)."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from vicinal.models.datasets import LabelledImages
from vicinal.models.preprocessing import Preprocessing
from vicinal.models.samplers import Batches
from vicinal.models.training.config import AugmentationConfig, TrainingConfig

__all__ = ["AugmentedImages", "augmentation", "training_batches"]

# Step, place in the batch, position of the image.
_Draw = tuple[int, int, int]


def training_batches(
    images: LabelledImages, config: TrainingConfig, *, first_step: int = 0, pin_memory: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Augmented batches of a run, the same for any number of workers and from whichever step on.

    Args:
        images: The training images.
        config: Sampler, augmentation, seed, workers and number of steps.
        first_step: Steps that were done before; their batches are drawn, but not loaded.
        pin_memory: Load into page-locked memory, for a GPU.

    Yields:
        (b, 3, S, S) float32 standardized pixels, (b,) int64 labels.

    Raises:
        ConfigError: The images cannot fill the sampler's batches.
    """
    groups = images.super_labels if config.sampler.kind == "hierarchical" else images.sources
    batches = config.sampler.batches(
        images.labels, groups, n_batches=config.optimizer.steps, seed=config.seed
    )
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        AugmentedImages(images, config.preprocessing, config.augmentation, seed=config.seed),
        batch_sampler=_StepSampler(batches, first_step),
        num_workers=config.workers,
        pin_memory=pin_memory,
        worker_init_fn=_ignore_interrupt,
        # Without one of its own the loader would draw from the generator of dropout.
        generator=torch.Generator(),
    )
    with warnings.catch_warnings():
        # Workers are forked, so that they share the pixels; they open no gallery.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        loaded = iter(loader)
    yield from loaded


class AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Training images, changed at random whenever they are drawn.

    Args:
        images: The images, larger than the input.
        preprocessing: Input size, mean and standard deviation.
        config: What is changed, and how much.
        seed: With the step and the place in the batch it decides on the changes of an image.
    """

    def __init__(
        self, images: LabelledImages, preprocessing: Preprocessing, config: AugmentationConfig, *, seed: int
    ) -> None:
        self.pixels = images.pixels
        self.class_ids = images.class_ids
        self.seed = seed
        self.transform = augmentation(preprocessing, config)

    def __getitem__(self, draw: _Draw) -> tuple[Tensor, int]:
        """(3, S, S) float32 pixels and label of one drawn image."""
        step, place, position = draw
        image = torch.from_numpy(self.pixels[position]).permute(2, 0, 1)
        # The transforms know the global generator only; the network's dropout must not notice.
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(_seed_of(self.seed, step, place))
            return self.transform(image), int(self.class_ids[position])


def augmentation(preprocessing: Preprocessing, config: AugmentationConfig) -> nn.Module:
    """Random changes of a (3, H, W) uint8 image, then standardization to (3, S, S) float32."""
    side = preprocessing.input_size
    steps: list[nn.Module] = [
        v2.RandomAffine(config.degrees, fill=255),
        v2.RandomResizedCrop(side, scale=(config.smallest_crop, 1.0), ratio=(0.8, 1.25), antialias=True),
        v2.ColorJitter(config.jitter, config.jitter, config.jitter, config.hue),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(preprocessing.mean), list(preprocessing.std)),
        v2.RandomErasing(config.erase, scale=(0.02, 0.15)),
    ]
    if config.flip:
        steps.insert(0, v2.RandomHorizontalFlip())
    return v2.Compose(steps)


class _StepSampler:
    """Batches with the step and the place of each image, from a step on."""

    def __init__(self, batches: Batches, first_step: int) -> None:
        self.batches = batches
        self.first_step = first_step

    def __len__(self) -> int:
        return len(self.batches) - self.first_step

    def __iter__(self) -> Iterator[list[_Draw]]:
        for step, batch in enumerate(self.batches):
            if step >= self.first_step:
                yield [(step, place, position) for place, position in enumerate(batch)]


def _seed_of(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _ignore_interrupt(_worker: int) -> None:
    # Ctrl-C reaches every process of a terminal; the training process ends its workers in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
