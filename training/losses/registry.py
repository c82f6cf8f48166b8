"""Registry of losses by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import PositiveInt, ValidationError
from torch import Tensor

from vicinal.models.configs.file import typed
from vicinal.models.errors import ConfigError
from vicinal.training.losses import published
from vicinal.training.losses.balanced_contrastive import BalancedContrastiveLoss
from vicinal.training.losses.base import MetricLoss
from vicinal.training.losses.config import AddedLossConfig, LossConfig
from vicinal.training.losses.contextual import ContextualLoss
from vicinal.training.losses.cross_batch_memory import CrossBatchMemory, WeightedSum
from vicinal.training.losses.mean_similarity import MeanSimilarity
from vicinal.training.losses.recall_at_k import RecallAtKLoss
from vicinal.training.losses.smooth_ap import SmoothAPLoss
from vicinal.training.losses.threshold_consistent_margin import ThresholdConsistentMargin
from vicinal.training.samplers import SamplerConfig

Loss = Callable[[Tensor, Tensor], Tensor]


def _cross_batch_memory(
    dim: int, loss: str | Mapping[str, Any], memory_size: PositiveInt = 1024
) -> MetricLoss:
    try:
        config = LossConfig.model_validate({"name": loss} if isinstance(loss, str) else loss)
    except ValidationError as error:
        raise ConfigError(f"the loss of cross_batch_memory: {error.errors()[0]['msg']}") from error
    inner = _build(config.name, config.arguments, {"dim": dim})
    if config.add or not isinstance(inner, published.PublishedLoss):
        raise ConfigError(
            "the loss of cross_batch_memory is contrastive, multi_similarity or triplet, "
            f"without 'add' (put that beside cross_batch_memory), got '{config.name}'"
        )
    return CrossBatchMemory(inner, dim, memory_size)


_REGISTRY: dict[str, Callable[..., MetricLoss]] = {
    "arcface": published.arcface,
    "balanced_contrastive": BalancedContrastiveLoss,
    "circle": published.circle,
    "contextual": ContextualLoss,
    "contrastive": published.contrastive,
    "cosface": published.cosface,
    "cosine_contrastive": published.cosine_contrastive,
    "cross_batch_memory": _cross_batch_memory,
    "fast_ap": published.fast_ap,
    "margin": published.margin,
    "mean_similarity": MeanSimilarity,
    "multi_similarity": published.MultiSimilarityLoss,
    "normalized_softmax": published.normalized_softmax,
    "proxy_anchor": published.proxy_anchor,
    "proxy_nca": published.proxy_nca,
    "recall_at_k": RecallAtKLoss,
    "smooth_ap": SmoothAPLoss,
    "threshold_consistent_margin": ThresholdConsistentMargin,
    "triplet": published.triplet,
}


# What a run knows by itself.
_FACTS = ("n_classes", "dim", "class_sizes", "max_per_class", "batch_design")
_ALIASES = {"tcm": "threshold_consistent_margin"}


def available_losses() -> list[str]:
    """Names that `build_loss` knows, sorted; `tcm` stands for `threshold_consistent_margin`."""
    return sorted(_REGISTRY)


def loss_arguments(name: str) -> dict[str, Any]:
    """Arguments that a configuration may give a loss, with defaults, `inspect.Parameter.empty` for none."""
    parameters = inspect.signature(_REGISTRY[name]).parameters.values()
    return {one.name: one.default for one in parameters if one.name not in _FACTS}


def build_loss(
    config: LossConfig,
    *,
    n_classes: int | None = None,
    dim: int | None = None,
    class_sizes: Sequence[int] | None = None,
    max_per_class: int | None = None,
    batch_design: Mapping[str, Any] | None = None,
) -> MetricLoss:
    """Create a loss, with what is added to it, by name.

    What a loss needs to know of the data and the network comes from the keywords; an argument of that name in
    the configuration goes before. Labels are 0 to `n_classes` - 1, by default as many as `class_sizes`;
    `max_per_class` items of a class stand in a batch at most. `batch_design` is `{kind = "group", m, n}` or
    `{kind = "random_pairs", p}`.
    """
    if n_classes is None and class_sizes is not None:
        n_classes = len(class_sizes)
    known = zip(_FACTS, (n_classes, dim, class_sizes, max_per_class, batch_design), strict=True)
    facts = {name: value for name, value in known if value is not None}
    base = _build(config.name, config.arguments, facts)
    if not config.add:
        return base
    return WeightedSum(base, [(one.weight, _build(one.name, one.arguments, facts)) for one in config.add])


def check_loss_fits_sampler(loss: LossConfig, sampler: SamplerConfig) -> None:
    """Refuse losses that need other batches than the sampler draws, or other arguments, by a ValueError."""
    parts: tuple[LossConfig | AddedLossConfig, ...] = (loss, *loss.add)
    for one in parts:
        match one.name:
            case "balanced_contrastive":
                design = sampler.batch_design
                if design is None:
                    raise ValueError(
                        "balanced_contrastive weighs pairs by how batches are drawn, which sampler kind "
                        f"'{sampler.kind}' does not allow: set sampler.kind to 'group' or 'random_pairs'"
                    )
                given = one.arguments.get("batch_design", design)
                if given != design:
                    raise ValueError(
                        f"batch_design of balanced_contrastive is {given}, the sampler draws {design}: "
                        "leave batch_design out, or change the sampler"
                    )
            case "contextual":
                k, drawn = one.arguments.get("k", 4), sampler.images_per_class
                if drawn is None:
                    raise ValueError(
                        f"the contextual loss needs k {k} images of each class of a batch, which sampler "
                        f"kind '{sampler.kind}' does not draw: set sampler.kind to 'class_balanced'"
                    )
                if k != drawn:
                    key = "m" if sampler.kind == "group" else "per_class"
                    raise ValueError(
                        f"the contextual loss has k {k}, the sampler draws {drawn} images of a class: "
                        f"set k in loss.arguments to {drawn}, or sampler.{key} to {k}"
                    )
    build_loss(
        loss,
        dim=8,
        class_sizes=[sampler.smallest_class] * sampler.batch_size,
        max_per_class=sampler.max_per_class,
        batch_design=sampler.batch_design,
    )


def _build(name: str, arguments: Mapping[str, Any], facts: Mapping[str, Any]) -> MetricLoss:
    create = _REGISTRY.get(_ALIASES.get(name, name))
    if create is None:
        raise ConfigError(f"unknown loss '{name}': choose one of {', '.join(available_losses())}")
    usable = {key: value for key, value in facts.items() if key in inspect.signature(create).parameters}
    try:
        return create(**{**usable, **typed(create, arguments, f"loss '{name}'")})
    except TypeError as error:
        raise ConfigError(f"loss '{name}': {error}") from error
