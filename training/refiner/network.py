"""Context refiner network (torch): what is learned of the formulas in `refine.step`, and where it starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.calibration.arrays import FloatArray
from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.refine.step import log_lengths, moved_rows
from vicinal.refine.weights import parameter_shapes
from vicinal.training.refiner.config import RefinerConfig

# They follow from the temperature, which steps may share.
_SCALES = ("logit_scale", "expansion_scale")
# Gates start as softmax query expansion, and a level by taking the pull of the refinement back.
_AT_ZERO = ("gate_logit", "gate_weight", "level_bias", "level_residual")


class RefinerStep(nn.Module):
    """The arrays of one step, under their names in `refine.weights`."""

    def __init__(self, architecture: RefinerArchitecture, config: RefinerConfig) -> None:
        super().__init__()
        self.architecture = architecture
        zeros = _zero_at_start(architecture, config)
        shapes = parameter_shapes(architecture)
        for name, shape in shapes.items():
            if name == "expansion_weight":
                start = torch.tensor([config.expansion_weight])
            else:
                start = torch.zeros(shape) if name in zeros else _start(name, shapes, architecture.dim)
            if name not in _SCALES:
                self.register_parameter(name, nn.Parameter(start))

    def arrays(self, temperature: Tensor) -> dict[str, Tensor]:
        """All arrays of the step, those that follow from the temperature included."""
        inverse = (1.0 / temperature).reshape(1)
        learned_scale = torch.ones_like(inverse) if self.architecture.expansion else inverse
        return {**dict(self.named_parameters()), "logit_scale": learned_scale, "expansion_scale": inverse}


class ContextRefinerNetwork(nn.Module):
    """The steps of a refiner."""

    def __init__(self, dim: int, config: RefinerConfig) -> None:
        super().__init__()
        self.config = config
        self.architecture = config.architecture(dim)
        self.dropout = nn.Dropout(config.dropout)
        self.steps = nn.ModuleList(RefinerStep(self.architecture, config) for _ in range(config.n_steps))
        learned = config.temperature is not None
        n_temperatures = 1 if config.shared_temperature or not learned else config.n_steps
        start = torch.full((n_temperatures,), math.log(config.temperature or 1.0))
        # The logarithm is learned, so that a temperature stays above zero.
        self.log_temperature = nn.Parameter(start, requires_grad=learned)

    def forward(
        self, query: Tensor, context: Tensor, mask: Tensor, radii: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Refine embeddings (B, d) with those of their neighbors (B, k, d), in any order, all L2-normalized.

        The mask (B, k) says where there is a neighbor; for a level their radii (B, k, 3) are needed, too, see
        `refine.neighbor_features`. Gives (B, T, d) the embedding after each step, L2-normalized; then
        (B, T, k) attention, the mean of heads; and with radii also (B, T) lengths as queries, in (0, 1]. A
        row without neighbors stays as it is, with attention 0 and length 1.
        """
        seen = self._hide_neighbors(mask)
        if self.config.neighbors == "none":
            refined, _ = self._run(query, query[:, None], torch.ones_like(mask[:, :1]))
            return refined, torch.zeros_like(context[..., 0])[:, None].repeat(1, len(self.steps), 1)
        refined, attention = self._run(query, context.masked_fill(~seen[..., None], 0.0), seen)
        steps = torch.where(seen.any(dim=1)[:, None, None], refined, query[:, None])
        if radii is None or not self.architecture.level:
            return steps, attention
        logs = self._log_lengths(steps, attention, query, context, seen, radii)
        return steps, attention, logs.masked_fill(~seen.any(dim=1, keepdim=True), 0.0).exp()

    def _log_lengths(
        self, steps: Tensor, attention: Tensor, query: Tensor, context: Tensor, mask: Tensor, radii: Tensor
    ) -> Tensor:
        """(B, T) logarithms of lengths; the direction gets no gradient: a level must not worsen rankings."""
        near, far = (one.masked_fill(~mask[..., None], 0.0) for one in (context, radii))
        refined, shares, present = steps.detach(), attention.detach(), mask.to(query.dtype)
        logs = [
            log_lengths(
                torch, arrays, (query[:, None], refined[:, n, None]), shares[:, n], near, present, far
            )
            for n, arrays in enumerate(self._arrays())
        ]
        return torch.stack(logs, dim=1)

    def _run(self, query: Tensor, context: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        initial, present = query[:, None], mask.to(query.dtype)
        current, steps, attention = initial, [], []
        for arrays in self._arrays():
            moved, weights = moved_rows(
                torch, arrays, self.architecture, current, initial, context, present, drop=self.dropout
            )
            current = functional.normalize(moved, dim=-1)
            steps.append(current[:, 0])
            attention.append(weights)
        return torch.stack(steps, dim=1), torch.stack(attention, dim=1)

    def _arrays(self) -> list[dict[str, Tensor]]:
        temperatures = self.log_temperature.exp().expand(len(self.steps))
        steps = cast("Iterable[RefinerStep]", self.steps)
        return [step.arrays(one) for step, one in zip(steps, temperatures, strict=True)]

    def _hide_neighbors(self, mask: Tensor) -> Tensor:
        share = self.config.neighbor_dropout
        if not self.training or not share:
            return mask
        kept = mask & (torch.rand(mask.shape, device=mask.device) >= share)
        return torch.where(kept.any(dim=1, keepdim=True), kept, mask)

    @torch.no_grad()
    def step_arrays(self) -> list[dict[str, FloatArray]]:
        """Arrays of each step as `refine.weights` names them."""
        names = parameter_shapes(self.architecture)
        return [
            {name: arrays[name].detach().float().cpu().numpy() for name in names} for arrays in self._arrays()
        ]


def _zero_at_start(architecture: RefinerArchitecture, config: RefinerConfig) -> set[str]:
    zeros = set(_AT_ZERO)
    if config.zero_init_output or architecture.expansion:
        zeros |= {"value" if architecture.form == "bare" else "output", "mlp"}
    if architecture.expansion:
        # Attention starts as that of the expansion alone; queries stay random, so that keys can learn.
        zeros.add("key")
    return zeros


def _start(name: str, shapes: dict[str, tuple[int, ...]], dim: int) -> Tensor:
    shape = shapes[name]
    if name == "level_scale":
        return torch.ones(shape)
    if name.startswith(("gate_", "level_")):
        # Matrix and bias as those of `nn.Linear`.
        bound = 1.0 / math.sqrt(shapes[name.removesuffix("_bias")][0])
    elif len(shape) == 1:
        return torch.zeros(shape)
    else:
        # Glorot for the d x d matrix that the heads' parts make up.
        bound = math.sqrt(3.0 / dim)
    return torch.empty(shape).uniform_(-bound, bound)
