"""Choice of the loss, by name, and how it has to fit the batches."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from vicinal.calibration.frozen import Frozen


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
