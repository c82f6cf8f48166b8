"""Optimizer, learning rates and their schedule (torch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator
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

from vicinal.calibration.frozen import Frozen
from vicinal.models.configs.file import typed
from vicinal.models.errors import ConfigError
from vicinal.training.backbones.backbone import EmbeddingNetwork

_OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "rmsprop": RMSprop, "sgd": SGD}


class CosineScheduleConfig(Frozen):
    """Half a cosine from the learning rate to zero at the last step."""

    kind: Literal["cosine"] = "cosine"


class StepScheduleConfig(Frozen):
    """The learning rate is multiplied every so many steps.

    Attributes:
        every: Steps between two changes, counted from the end of the warm-up.
        factor: Factor of one change.
    """

    kind: Literal["step"] = "step"
    every: int = Field(ge=1)
    factor: float = Field(0.1, gt=0.0, lt=1.0)


class MultistepScheduleConfig(Frozen):
    """The learning rate is multiplied at given steps.

    Attributes:
        milestones: Steps of training at which it changes, rising, after the warm-up.
        factor: Factor of one change.
    """

    kind: Literal["multistep"] = "multistep"
    milestones: tuple[PositiveInt, ...] = Field(min_length=1)
    factor: float = Field(0.1, gt=0.0, lt=1.0)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones {list(self.milestones)} must rise")
        return self


class ConstantScheduleConfig(Frozen):
    """The learning rate stays."""

    kind: Literal["constant"] = "constant"


class OneCycleScheduleConfig(Frozen):
    """A rise to the learning rate and a fall to nearly zero, in cosines; it has no warm-up besides.

    Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates".

    Attributes:
        rise: Share of the steps until the highest learning rate.
    """

    kind: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.3, gt=0.0, lt=1.0)


# Its kind alone stands for a table with the kind: `schedule = "constant"`.
ScheduleConfig = Annotated[
    CosineScheduleConfig
    | StepScheduleConfig
    | MultistepScheduleConfig
    | ConstantScheduleConfig
    | OneCycleScheduleConfig,
    Field(discriminator="kind"),
    BeforeValidator(lambda one: {"kind": one} if isinstance(one, str) else one),
]


class OptimizerConfig(Frozen):
    """Optimizer, learning rates and number of steps.

    Attributes:
        name: torch's AdamW, Adam, SGD or RMSprop.
        learning_rate: Highest learning rate of the trunk.
        weight_decay: Decay of weights; biases, norms and the loss's own parameters are not decayed.
        arguments: Other arguments of torch's class, such as `{ betas = [0.9, 0.98] }`; `sgd` has a momentum
            of 0.9 if they name none.
        steps: Steps of training, one batch each.
        warmup_steps: First steps, in which the learning rate rises from zero; by default a tenth of all,
            at most 100.
        schedule: How the learning rate changes after the warm-up.
        clip_norm: Longest gradient, over all parameters; 0 does not clip.
        head_learning_rate_factor: Factor on the learning rate of what follows the trunk: pooling, norm, head
            and projector.
        loss_learning_rate_factor: Factor on the learning rate of the loss's own parameters: proxies usually
            need 10 to 100.
    """

    name: Literal["adamw", "adam", "sgd", "rmsprop"] = "adamw"
    learning_rate: float = Field(1e-3, gt=0.0, allow_inf_nan=False)
    weight_decay: float = Field(0.05, ge=0.0, allow_inf_nan=False)
    arguments: dict[str, Any] = Field(default_factory=dict)
    steps: int = Field(2000, ge=1)
    warmup_steps: int | None = Field(None, ge=0)
    schedule: ScheduleConfig = CosineScheduleConfig()
    clip_norm: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    head_learning_rate_factor: float = Field(1.0, gt=0.0, allow_inf_nan=False)
    loss_learning_rate_factor: float = Field(1.0, gt=0.0, allow_inf_nan=False)

    @property
    def n_warmup(self) -> int:
        """Steps of the warm-up."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return 0 if self.schedule.kind == "one_cycle" else min(100, self.steps // 10)

    @model_validator(mode="after")
    def _fits_in(self) -> Self:
        if self.n_warmup and self.schedule.kind == "one_cycle":
            raise ValueError("the one_cycle schedule has a rise of its own: leave warmup_steps out")
        if self.schedule.kind == "multistep" and self.schedule.milestones[0] <= self.n_warmup:
            raise ValueError(
                f"milestone {self.schedule.milestones[0]} lies in the warm-up of {self.n_warmup} steps"
            )
        build_optimizer([{"params": [nn.Parameter()]}], self)
        return self


def parameter_groups(
    network: EmbeddingNetwork, projector: nn.Module, loss: nn.Module, config: OptimizerConfig
) -> list[dict[str, Any]]:
    """Parameters by learning rate and weight decay: the trunk at the base rate, the rest at the head's.

    The loss's own, such as proxies, have the loss's rate and no decay: they are compared by angle, so that
    only their direction counts.
    """
    head = nn.ModuleList([network.pooling, network.norm, network.head, projector])
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
    """Create the optimizer over groups that name their rate and decay."""
    create, whose = _OPTIMIZERS[config.name], f"optimizer '{config.name}'"
    defaults = {"momentum": 0.9} if config.name == "sgd" else {}
    given = typed(create, config.arguments, whose)
    try:
        return create(groups, **{**defaults, **given})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{whose}: {error}: change optimizer.arguments") from error


def build_schedule(optimizer: Optimizer, config: OptimizerConfig) -> LRScheduler:
    """Create the schedule, to be stepped after each step of training: warm-up, then what the kind says."""
    warmup = config.n_warmup
    # The first step already trains, at 1 / warmup of the rate.
    after = _after_warmup(optimizer, config.schedule, config.steps, warmup)
    if not warmup:
        return after
    rise = LinearLR(optimizer, 1.0 / (warmup + 1), total_iters=warmup)
    return SequentialLR(optimizer, [rise, after], milestones=[warmup])


def _after_warmup(optimizer: Optimizer, schedule: ScheduleConfig, steps: int, warmup: int) -> LRScheduler:
    match schedule:
        case CosineScheduleConfig():
            return CosineAnnealingLR(optimizer, max(1, steps - warmup))
        case StepScheduleConfig(every=every, factor=factor):
            return StepLR(optimizer, every, factor)
        case MultistepScheduleConfig(milestones=milestones, factor=factor):
            return MultiStepLR(optimizer, [one - warmup for one in milestones], factor)
        case ConstantScheduleConfig():
            return ConstantLR(optimizer, factor=1.0, total_iters=0)
        case OneCycleScheduleConfig(rise=rise):
            highest = [group["lr"] for group in optimizer.param_groups]
            # One more, because torch has no rate for what would be set after the last step.
            total = steps + 1
            return OneCycleLR(optimizer, highest, total, pct_start=rise, cycle_momentum=False)


def clip_gradients(groups: Iterable[dict[str, Any]], longest: float) -> None:
    """Shorten the gradient over all parameters to a length; 0 leaves it."""
    if longest:
        parameters = [parameter for group in groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, longest)
