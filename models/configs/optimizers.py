"""How weights are learned: optimizer, learning rates and their schedule."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

__all__ = [
    "ConstantScheduleConfig",
    "CosineScheduleConfig",
    "MultistepScheduleConfig",
    "OneCycleScheduleConfig",
    "OptimizerConfig",
    "ScheduleConfig",
    "StepScheduleConfig",
]


class _Schedule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CosineScheduleConfig(_Schedule):
    """Half a cosine from the learning rate to zero at the last step."""

    kind: Literal["cosine"] = "cosine"


class StepScheduleConfig(_Schedule):
    """The learning rate is multiplied every so many steps.

    Attributes:
        every: Steps between two changes, counted from the end of the warm-up.
        factor: Factor of one change.
    """

    kind: Literal["step"] = "step"
    every: int = Field(ge=1)
    factor: float = Field(0.1, gt=0.0, lt=1.0)


class MultistepScheduleConfig(_Schedule):
    """The learning rate is multiplied at given steps.

    Attributes:
        milestones: Steps of training at which it changes, rising, after the warm-up.
        factor: Factor of one change.
    """

    kind: Literal["multistep"] = "multistep"
    milestones: tuple[PositiveInt, ...] = Field(min_length=1)
    factor: float = Field(0.1, gt=0.0, lt=1.0)

    @model_validator(mode="after")
    def _rises(self) -> MultistepScheduleConfig:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones {list(self.milestones)} must rise")
        return self


class ConstantScheduleConfig(_Schedule):
    """The learning rate stays."""

    kind: Literal["constant"] = "constant"


class OneCycleScheduleConfig(_Schedule):
    """One rise to the learning rate and one fall to nearly zero, in cosines; it has no warm-up besides.

    Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates".

    Attributes:
        rise: Share of the steps until the highest learning rate.
    """

    kind: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.3, gt=0.0, lt=1.0)


def _of_kind(schedule: Any) -> Any:
    return {"kind": schedule} if isinstance(schedule, str) else schedule


# Its kind alone stands for a table with the kind: `schedule = "constant"`.
ScheduleConfig = Annotated[
    CosineScheduleConfig
    | StepScheduleConfig
    | MultistepScheduleConfig
    | ConstantScheduleConfig
    | OneCycleScheduleConfig,
    Field(discriminator="kind"),
    BeforeValidator(_of_kind),
]


class OptimizerConfig(BaseModel):
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
        frozen_trunk_steps: First steps, in which the trunk's weights stay, so that a new head does not spoil
            pretrained ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    frozen_trunk_steps: int = Field(0, ge=0)

    @property
    def n_warmup(self) -> int:
        """Steps of the warm-up."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return 0 if self.schedule.kind == "one_cycle" else min(100, self.steps // 10)

    @model_validator(mode="after")
    def _fits_in(self) -> OptimizerConfig:
        if self.n_warmup and self.schedule.kind == "one_cycle":
            raise ValueError("the one_cycle schedule has a rise of its own: leave warmup_steps out")
        if self.schedule.kind == "multistep" and self.schedule.milestones[0] <= self.n_warmup:
            raise ValueError(
                f"milestone {self.schedule.milestones[0]} lies in the warm-up of {self.n_warmup} steps"
            )
        return self
