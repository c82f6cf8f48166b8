"""Samplers: which images form a batch, by their section of a recipe; and the classes that one cannot draw.

A new one gets a module and a place in `SamplerConfig`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from vicinal.models.errors import ConfigError
from vicinal.training.datasets.labelled import LabelledImages
from vicinal.training.samplers.batches import Batches
from vicinal.training.samplers.class_balanced import ClassBalancedConfig, SourceBalancedConfig
from vicinal.training.samplers.designs import GroupConfig, RandomPairsConfig
from vicinal.training.samplers.hierarchical import HierarchicalConfig

__all__ = [
    "Batches",
    "ClassBalancedConfig",
    "GroupConfig",
    "HierarchicalConfig",
    "RandomPairsConfig",
    "SamplerConfig",
    "SourceBalancedConfig",
    "leave_out_small_classes",
]


def _with_kind(fields: Any) -> Any:
    if isinstance(fields, Mapping) and "kind" not in fields:
        by_source = "classes_per_source" in fields
        return {**fields, "kind": "source_balanced" if by_source else "class_balanced"}
    return fields


# Without a kind: class-balanced, or source-balanced where `classes_per_source` says so.
SamplerConfig = Annotated[
    ClassBalancedConfig | SourceBalancedConfig | HierarchicalConfig | GroupConfig | RandomPairsConfig,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]


def leave_out_small_classes(images: LabelledImages, smallest: int) -> tuple[LabelledImages, list[str]]:
    """Leave out classes with fewer than `smallest` images, and name them; ConfigError where none is left."""
    names, sizes = np.unique(images.labels, return_counts=True)
    small = names[sizes < smallest]
    if len(small) == len(names):
        raise ConfigError(
            f"none of the {len(names)} training classes has {smallest} images, the largest has "
            f"{sizes.max(initial=0)}: add images, or check that images of one thing share a label"
        )
    return images.subset(~np.isin(images.labels, small)), small.tolist()
