"""Samplers by their configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal.models.configs.samplers import (
    ClassBalancedConfig,
    GroupConfig,
    HierarchicalConfig,
    RandomPairsConfig,
    SamplerConfig,
    SourceBalancedConfig,
)
from vicinal.models.datasets.labelled import LabelledImages
from vicinal.models.errors import ConfigError
from vicinal.models.samplers.class_balanced import ClassBalancedSampler
from vicinal.models.samplers.group import GroupSampler
from vicinal.models.samplers.hierarchical import HierarchicalSampler
from vicinal.models.samplers.random_pairs import RandomPairsSampler
from vicinal.models.samplers.source_balanced import SourceBalancedSampler

__all__ = ["BatchSampler", "build_sampler", "leave_out_small_classes"]


class BatchSampler(Protocol):
    """Batches as lists of positions; iterating anew gives the same batches."""

    def __iter__(self) -> Iterator[list[int]]:
        """One list of positions a batch."""
        ...

    def __len__(self) -> int:
        """Number of batches."""
        ...


def build_sampler(
    config: SamplerConfig, images: LabelledImages, *, n_batches: int, seed: int
) -> BatchSampler:
    """Create the sampler that a configuration names.

    Args:
        config: The sampler's kind and settings.
        images: The training images, without classes that are too small.
        n_batches: Batches of one pass.
        seed: The same seed gives the same batches.

    Raises:
        ConfigError: The images cannot fill such batches.
    """
    passes = {"n_batches": n_batches, "seed": seed}
    match config:
        case ClassBalancedConfig(batch_size=batch_size, per_class=per_class):
            return ClassBalancedSampler(
                images.class_ids, batch_size=batch_size, per_class=per_class, **passes
            )
        case SourceBalancedConfig(classes_per_source=shares, per_class=per_class):
            return SourceBalancedSampler(
                images.class_ids, images.sources, shares, per_class=per_class, **passes
            )
        case HierarchicalConfig(batch_size=batch_size, per_class=per_class):
            return HierarchicalSampler(
                images.labels, _super_labels(images), batch_size=batch_size, per_class=per_class, **passes
            )
        case GroupConfig(m=m, n=n):
            return GroupSampler(images.class_ids, m=m, n=n, **passes)
        case RandomPairsConfig(p=p, n_pairs=n_pairs):
            return RandomPairsSampler(images.class_ids, p=p, n_pairs=n_pairs, **passes)


def leave_out_small_classes(images: LabelledImages, smallest: int) -> tuple[LabelledImages, list[str]]:
    """Leave out the classes that a sampler cannot draw.

    Args:
        images: Labelled images.
        smallest: Least images of a class.

    Returns:
        The images of the other classes, and the sorted names of the classes left out.

    Raises:
        ConfigError: No class is left.
    """
    names, sizes = np.unique(images.labels, return_counts=True)
    small = names[sizes < smallest]
    if len(small) == len(names):
        raise ConfigError(
            f"none of the {len(names)} training classes has {smallest} images, the largest has "
            f"{sizes.max(initial=0)}: add images, or check that images of one thing share a label"
        )
    return images.subset(~np.isin(images.labels, small)), small.tolist()


def _super_labels(images: LabelledImages) -> npt.NDArray[np.str_]:
    found = np.unique(images.super_labels)
    if len(found) < 2:
        raise ConfigError(
            f"the hierarchical sampler needs two super-labels or more, the data sets have {len(found)}: "
            "set sampler.kind to 'class_balanced', or train on a data set with super-labels"
        )
    return images.super_labels
