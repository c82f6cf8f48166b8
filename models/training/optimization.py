"""Optimizer and learning rates of a run (torch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from vicinal.models.backbone import EmbeddingNetwork
from vicinal.models.configs.optimizers import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    MultistepScheduleConfig,
    OneCycleScheduleConfig,
    OptimizerConfig,
    StepScheduleConfig,
)
from vicinal.models.errors import ConfigError

__all__ = ["build_optimizer", "build_schedule", "clip_gradients", "parameter_groups"]

_OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "rmsprop": RMSprop, "sgd": SGD}


def parameter_groups(
    network: EmbeddingNetwork, projector: nn.Module, loss: nn.Module, config: OptimizerConfig
) -> list[dict[str, Any]]:
    """Parameters by learning rate and weight decay.

    Args:
        network: Trunk at the base rate; what follows it at the head's.
        projector: At the head's rate.
        loss: Its parameters, such as proxies, at the loss's rate and without decay: they are compared by
            angle, so that only their direction counts.
        config: Rates and decay.

    Raises:
        ConfigError: There is nothing to train while the trunk is frozen.
    """
    head = nn.ModuleList([network.pooling, network.norm, network.head, projector])
    if config.frozen_trunk_steps and not (list(head.parameters()) or list(loss.parameters())):
        raise ConfigError("frozen_trunk_steps leave nothing to train: set backbone.dim, which makes a head")
    rate = config.learning_rate
    groups: list[dict[str, Any]] = []
    for part, factor in ((network.trunk, 1.0), (head, config.head_learning_rate_factor)):
        learned = [parameter for parameter in part.parameters() if parameter.requires_grad]
        # Biases, norms and the pooling exponent are not decayed: they set scales, not directions.
        for is_decayed, decay in ((True, config.weight_decay), (False, 0.0)):
            own = [parameter for parameter in learned if (parameter.ndim > 1) == is_decayed]
            groups.append({"params": own, "lr": rate * factor, "weight_decay": decay})
    loss_rate = rate * config.loss_learning_rate_factor
    groups.append({"params": list(loss.parameters()), "lr": loss_rate, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def build_optimizer(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """Create the optimizer over groups that name their rate and decay.

    Raises:
        ConfigError: torch refuses an argument.
    """
    defaults = {"momentum": 0.9} if config.name == "sgd" else {}
    try:
        return _OPTIMIZERS[config.name](groups, **{**defaults, **config.arguments})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer '{config.name}': {error}: change optimizer.arguments") from error


def build_schedule(optimizer: Optimizer, config: OptimizerConfig) -> LRScheduler:
    """Create the schedule, to be stepped after each step of training: warm-up, then what the kind says."""
    warmup = config.n_warmup
    # The first step already trains, at 1 / warmup of the rate.
    after = _after_warmup(optimizer, config)
    if not warmup:
        return after
    rise = LinearLR(optimizer, 1.0 / (warmup + 1), total_iters=warmup)
    return SequentialLR(optimizer, [rise, after], milestones=[warmup])


def clip_gradients(groups: Iterable[dict[str, Any]], longest: float) -> None:
    """Shorten the gradient over all parameters to a length; 0 leaves it."""
    if longest:
        parameters = [parameter for group in groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, longest)


def _after_warmup(optimizer: Optimizer, config: OptimizerConfig) -> LRScheduler:
    warmup = config.n_warmup
    match config.schedule:
        case CosineScheduleConfig():
            return CosineAnnealingLR(optimizer, max(1, config.steps - warmup))
        case StepScheduleConfig(every=every, factor=factor):
            return StepLR(optimizer, every, factor)
        case MultistepScheduleConfig(milestones=milestones, factor=factor):
            return MultiStepLR(optimizer, [milestone - warmup for milestone in milestones], factor)
        case ConstantScheduleConfig():
            return ConstantLR(optimizer, factor=1.0, total_iters=0)
        case OneCycleScheduleConfig(rise=rise):
            highest = [group["lr"] for group in optimizer.param_groups]
            # One more, because torch has no rate for what would be set after the last step.
            return OneCycleLR(
                optimizer, highest, total_steps=config.steps + 1, pct_start=rise, cycle_momentum=False
            )
