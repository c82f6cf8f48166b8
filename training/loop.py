"""The loop of every training: steps, looks at the network between them, and its best weights (torch)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.training.execution.device import random_states, set_random_states
from vicinal.training.optimization import clip_gradients


class Record(Protocol):
    """A look at the network."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def order(self) -> Any:
        """Key of which a lower one is better; NaN, which is not compared, is better than none."""


Kept = TypeVar("Kept", bound=Record)
Batch = TypeVar("Batch")


@dataclass
class TrainingState(Generic[Kept]):
    """Weights, optimizer, records and random states of a run: all that a step of training changes.

    The `network` is kept in the end. `beside` it, by name, the loss with its parameters and memory and layers
    between embedding and loss are learned and left behind. `best` is the best look, before the first one that
    any other is better than, and `best_weights` the network's at it. A run that interpolates needs
    `start_weights`, those before the first step; a resumed one makes them again. `losses` are those since the
    last look.
    """

    network: nn.Module
    beside: dict[str, nn.Module]
    optimizer: Optimizer
    schedule: LRScheduler
    best: Kept
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler(enabled=False))
    start_weights: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0
    seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    records: list[Kept] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def add(self, record: Kept) -> None:
        """Add a look; the weights are kept if it is the best one, or the last without scores."""
        self.records.append(record)
        if not self.best.order <= record.order:
            self.best = record
            self.best_weights = copied(self.network.state_dict())

    def looks(
        self,
        batches: Iterable[Batch],
        backward: Callable[[Batch], Tensor],
        *,
        last: int,
        every: int,
        clip_norm: float,
        ends: Callable[[Tensor], bool] = lambda _loss: False,
    ) -> Iterator[float]:
        """Train, and stop for a look at the network every so many steps and at the last one.

        `backward` leaves the gradient of a batch in the parameters, and gives its loss, detached; `ends` is
        called with it after each step, and the look at it, and ends the training when true. Gives the mean
        loss since the look before.
        """
        started = time.monotonic() - self.seconds
        for batch in islice(batches, last - self.step):
            self.optimizer.zero_grad(set_to_none=True)
            loss = backward(batch)
            self.losses.append(loss)
            self._apply_gradients(clip_norm)
            self.step += 1
            self.seconds = time.monotonic() - started
            if self.step % every == 0 or self.step == last:
                mean = float(torch.stack(self.losses).mean())
                self.losses.clear()
                yield mean
            if ends(loss):
                break

    def _apply_gradients(self, clip_norm: float) -> None:
        """Step the optimizer and the schedule; under float16, a step whose gradient overflows is skipped."""
        self.scaler.unscale_(self.optimizer)
        clip_gradients(self.optimizer.param_groups, clip_norm)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() >= scale:
            self.schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values from which `load_state_dict` brings an equal run to this state."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "step": self.step,
            "seconds": self.seconds,
            "losses": [float(loss) for loss in self.losses],
            "records": [asdict(record) for record in self.records],  # type: ignore[call-overload]
            "best": asdict(self.best),  # type: ignore[call-overload]
            "best_weights": self.best_weights,
            "random": random_states(self.device),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, the random states of torch among it.

        A RuntimeError, KeyError or ValueError says that it is one of another network or optimizer.
        """
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step = state["step"]
        self.seconds = state["seconds"]
        self.losses = [torch.tensor(loss, device=self.device) for loss in state["losses"]]
        self.records = [type(self.best)(**record) for record in state["records"]]
        self.best = type(self.best)(**state["best"])
        self.best_weights = state["best_weights"]
        set_random_states(state["random"], self.device)

    def _parts(self) -> dict[str, Any]:
        return {
            "network": self.network,
            **self.beside,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
        }


def finite(loss: float, step: int, advice: str, error: type[Exception]) -> float:
    """A mean loss that is a number; an error with advice stands for any other."""
    if not math.isfinite(loss):
        raise error(f"the loss is {loss} by step {step}: lower optimizer.learning_rate, or {advice}")
    return loss


def copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights that stay as they are while the network goes on learning."""
    return {name: value.detach().clone() for name, value in weights.items()}
