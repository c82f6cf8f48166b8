"""Samplers: which images form a batch. Each is an iterable of lists of positions."""

from models.samplers.class_balanced import ClassBalancedSampler
from models.samplers.group import GroupSampler
from models.samplers.hierarchical import HierarchicalSampler
from models.samplers.random_pairs import RandomPairsSampler
from models.samplers.registry import build_sampler, leave_out_small_classes
from models.samplers.source_balanced import SourceBalancedSampler

__all__ = [
    "ClassBalancedSampler",
    "GroupSampler",
    "HierarchicalSampler",
    "RandomPairsSampler",
    "SourceBalancedSampler",
    "build_sampler",
    "leave_out_small_classes",
]
