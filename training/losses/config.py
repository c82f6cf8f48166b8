"""Choice of the loss, by name, and how it has to fit the batches."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from vicinal.calibration.frozen import Frozen
from vicinal.training.samplers import SamplerConfig


def named_loss(loss: Any) -> Any:
    """A loss given by its name alone as the table that it stands for."""
    return {"name": loss} if isinstance(loss, str) else loss


class AddedLossConfig(Frozen):
    """A loss that is added to another; its name alone stands for a table with the name.

    Attributes:
        name: Registry name.
        weight: Factor on the added loss.
        arguments: Arguments of the loss.
    """

    name: str
    weight: float = Field(1.0, gt=0.0, allow_inf_nan=False)
    arguments: dict[str, Any] = Field(default_factory=dict)


class LossConfig(Frozen):
    """A loss; its name alone (`loss = "contextual"`) stands for a table with the name.

    Attributes:
        name: Registry name.
        arguments: Arguments of the loss.
        add: Losses added to it, each with its weight.
    """

    name: str = "multi_similarity"
    arguments: dict[str, Any] = Field(default_factory=dict)
    add: tuple[Annotated[AddedLossConfig, BeforeValidator(named_loss)], ...] = ()


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
    if loss != LossConfig():
        # Torch takes seconds to load; whatever is wrong is told before images are decoded for an hour.
        from vicinal.training.losses.registry import build_loss

        build_loss(
            loss,
            dim=8,
            class_sizes=[sampler.smallest_class] * sampler.batch_size,
            max_per_class=sampler.max_per_class,
            batch_design=sampler.batch_design,
        )
