"""Samplers: which images form a batch, by their section of a recipe."""

from vicinal.models.samplers.batches import Batches
from vicinal.models.samplers.class_balanced import ClassBalancedConfig
from vicinal.models.samplers.group import GroupConfig
from vicinal.models.samplers.hierarchical import HierarchicalConfig
from vicinal.models.samplers.random_pairs import RandomPairsConfig
from vicinal.models.samplers.registry import SamplerConfig, leave_out_small_classes
from vicinal.models.samplers.source_balanced import SourceBalancedConfig

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
