"""Samplers: which images form a batch. Each is an iterable of lists of positions."""

from vicinal.models.samplers.class_balanced import ClassBalancedSampler
from vicinal.models.samplers.group import GroupSampler
from vicinal.models.samplers.hierarchical import HierarchicalSampler
from vicinal.models.samplers.random_pairs import RandomPairsSampler
from vicinal.models.samplers.registry import build_sampler, leave_out_small_classes
from vicinal.models.samplers.source_balanced import SourceBalancedSampler

__all__ = [
    "ClassBalancedSampler",
    "GroupSampler",
    "HierarchicalSampler",
    "RandomPairsSampler",
    "SourceBalancedSampler",
    "build_sampler",
    "leave_out_small_classes",
]
