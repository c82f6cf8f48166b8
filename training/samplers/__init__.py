"""Samplers: which images form a batch, by their section of a recipe."""

from vicinal.training.samplers.batches import Batches
from vicinal.training.samplers.class_balanced import ClassBalancedConfig
from vicinal.training.samplers.group import GroupConfig
from vicinal.training.samplers.hierarchical import HierarchicalConfig
from vicinal.training.samplers.random_pairs import RandomPairsConfig
from vicinal.training.samplers.registry import SamplerConfig, leave_out_small_classes
from vicinal.training.samplers.source_balanced import SourceBalancedConfig

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
