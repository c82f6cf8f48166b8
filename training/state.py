"""All that a step of training changes (torch)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.training.backbones.backbone import EmbeddingNetwork
from vicinal.training.execution.random_states import random_states, set_random_states
from vicinal.training.observer import StepRecord
from vicinal.training.optimization import clip_gradients

_NO_RECORD = StepRecord(0, math.nan, math.nan, math.nan, 0.0)


@dataclass
class TrainingState:
    """Weights, optimizer, records and random states of a run.

    Attributes:
        network: What is exported in the end.
        projector: Layers between embedding and loss.
        loss: The loss, with its parameters and memory.
        optimizer: Over the parameters of all three.
        schedule: Of the learning rates.
        scaler: Of the loss under float16.
        start_weights: The network's weights before the first step, for a run that interpolates; a resumed one
            makes them again.
        step: Steps done.
        seconds: Time spent on them.
        losses: Loss of each step since the last validation.
        records: All validations.
        best: The best validation; of step 0 before the first.
        best_weights: The network's weights at the best validation.
    """

    network: EmbeddingNetwork
    projector: nn.Module
    loss: nn.Module
    optimizer: Optimizer
    schedule: LRScheduler
    scaler: torch.amp.GradScaler
    start_weights: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0
    seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)
    best: StepRecord = _NO_RECORD
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def add(self, record: StepRecord) -> None:
        """Add a validation; the weights are kept if it is the best one, or the last without scores."""
        self.records.append(record)
        self.losses.clear()
        # Without held-out classes MAP@R is NaN.
        if not record.map_at_r <= self.best.map_at_r:
            self.best = record
            self.best_weights = copied(self.network.state_dict())

    def freeze_trunk(self, frozen: bool) -> None:
        """Keep the trunk's learned weights where they are, or let them be trained."""
        learned = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        for parameter in self.network.trunk.parameters():
            if id(parameter) in learned:
                parameter.requires_grad_(not frozen)

    def apply_gradients(self, clip_norm: float) -> None:
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
            "records": [asdict(record) for record in self.records],
            "best": asdict(self.best),
            "best_weights": self.best_weights,
            "random": random_states(self.device),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, the random states of torch among it."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step = state["step"]
        self.seconds = state["seconds"]
        self.losses = [torch.tensor(loss, device=self.device) for loss in state["losses"]]
        self.records = [StepRecord(**record) for record in state["records"]]
        self.best = StepRecord(**state["best"])
        self.best_weights = state["best_weights"]
        set_random_states(state["random"], self.device)

    def _parts(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "projector": self.projector,
            "loss": self.loss,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
        }


def copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights that stay as they are while the network goes on learning."""
    return {name: value.detach().clone() for name, value in weights.items()}
