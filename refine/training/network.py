"""Context refiner network (torch).

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR), with neighbors
left unprojected as `refine.refiner_step` explains: the same function and the same gradients, for about a
third of the products at 8 neighbors. Serving does the same in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.models.similarity import FloatArray
from vicinal.refine.errors import RefinementError
from vicinal.refine.refiner_weights import parameter_shapes
from vicinal.refine.training.config import RefinerConfig
from vicinal.refine.training.gate_network import GatedStep, Level

__all__ = ["ContextRefinerNetwork", "RefinerStep"]

_SCALARS = ("logit_scale", "expansion_scale", "expansion_weight")


class RefinerStep(nn.Module):
    """One step: attention to the neighbors, with or without an MLP behind it.

    `CA(e, C) = A(e, C) + MLP(e + A(e, C))`.

    Args:
        architecture: What is computed.
        config: How it starts, and dropout.
    """

    query: nn.Parameter
    query_bias: nn.Parameter
    key: nn.Parameter
    value: nn.Parameter
    output: nn.Parameter
    output_bias: nn.Parameter
    hidden: nn.Parameter
    hidden_bias: nn.Parameter
    mlp: nn.Parameter
    mlp_bias: nn.Parameter

    def __init__(self, architecture: RefinerArchitecture, config: RefinerConfig) -> None:
        super().__init__()
        self.architecture = architecture
        self.dropout = nn.Dropout(config.dropout)
        for name, shape in parameter_shapes(architecture).items():
            if name not in _SCALARS:
                self.register_parameter(name, nn.Parameter(_start(shape, architecture.dim)))
        self.expansion_weight = (
            nn.Parameter(torch.tensor([config.expansion_weight])) if architecture.expansion else None
        )
        if config.zero_init_output or architecture.expansion:
            self._start_at_nothing()

    def _start_at_nothing(self) -> None:
        last = "value" if self.architecture.form == "bare" else "output"
        zeros = [last, "mlp"] if self.architecture.form == "attention_mlp" else [last]
        if self.architecture.expansion:
            # Attention starts as that of the expansion alone; queries stay random, so that keys can learn.
            zeros.append("key")
        for name in zeros:
            nn.init.zeros_(self.get_parameter(name))

    def forward(
        self, rows: Tensor, context: Tensor, mask: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Refine embeddings once.

        Args:
            rows: (B, d) embeddings e^{t-1}.
            context: (B, k, d), with zeros where there is no neighbor.
            mask: (B, k) where there is one.
            temperature: Scalar that attention is divided by.

        Returns:
            (B, d) embeddings e^t, L2-normalized, and (B, k) attention, the mean of the heads; both without
            meaning where a row has no neighbor.
        """
        logits = torch.matmul(self._head_queries(rows, temperature), context.transpose(1, 2))
        # Not -inf: a row without neighbors would be NaN, and so would be every gradient.
        masked = logits.masked_fill(~mask[:, None], torch.finfo(logits.dtype).min)
        by_head = masked.softmax(dim=-1) * mask[:, None]
        attention = by_head.mean(dim=1)
        added = self._output(torch.matmul(by_head, context))
        if self.expansion_weight is not None:
            added = added + self.expansion_weight * torch.matmul(attention[:, None], context)[:, 0]
        refined = rows + added
        if self.architecture.form == "attention_mlp":
            hidden = functional.relu(refined @ self.hidden + self.hidden_bias)
            refined = refined + self.dropout(hidden) @ self.mlp + self.mlp_bias
        return functional.normalize(refined, dim=-1), attention

    def _head_queries(self, rows: Tensor, temperature: Tensor) -> Tensor:
        """(B, h, d) what each head compares with the neighbors."""
        heads = self.architecture.n_heads
        width = self.architecture.dim // heads
        queries = rows @ self.query
        if self.architecture.form != "bare":
            queries = queries + self.query_bias
        by_head = queries.reshape(-1, heads, width).transpose(0, 1)
        compared = torch.matmul(by_head, self.key).transpose(0, 1)
        if self.architecture.expansion:
            return compared / math.sqrt(width) + rows[:, None] / temperature
        return compared / (math.sqrt(width) * temperature)

    def _output(self, gathered: Tensor) -> Tensor:
        """(B, d) what the heads add, from what they gathered (B, h, d)."""
        values = torch.matmul(gathered.transpose(0, 1), self.value)
        joined = values.transpose(0, 1).reshape(-1, self.architecture.dim)
        if self.architecture.form == "bare":
            return joined
        return self.dropout(joined @ self.output + self.output_bias)


class ContextRefinerNetwork(nn.Module):
    """The steps of a refiner.

    Args:
        dim: Length d of the embeddings.
        config: The network.

    Raises:
        RefinerConfigError: The heads do not divide `dim`.
    """

    def __init__(self, dim: int, config: RefinerConfig) -> None:
        super().__init__()
        self.config = config
        self.architecture = config.architecture(dim)
        gated, steps = config.form == "gated", range(config.n_steps)
        kind: Callable[..., nn.Module] = GatedStep if gated else RefinerStep
        self.steps = nn.ModuleList(kind(self.architecture, config) for _ in steps)
        self.levels = nn.ModuleList(Level(self.architecture) for _ in steps if config.level)
        learned = config.temperature is not None
        n_temperatures = 1 if config.shared_temperature or not learned else config.n_steps
        start = torch.full((n_temperatures,), math.log(config.temperature or 1.0))
        # The logarithm is learned, so that a temperature stays above zero.
        self.log_temperature = nn.Parameter(start, requires_grad=learned)

    def forward(
        self, query: Tensor, context: Tensor, mask: Tensor, radii: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Refine embeddings with their neighbors.

        Args:
            query: (B, d) initial embeddings, L2-normalized.
            context: (B, k, d) initial embeddings of their neighbors, in any order.
            mask: (B, k) of bool, where there is a neighbor.
            radii: (B, k, 3) of the neighbors, for a refiner with a level; see `refine.neighbor_features`.

        Returns:
            (B, T, d) embedding after each step, L2-normalized; (B, T, k) attention, the mean of heads; and
            of a refiner with a level that got radii also (B, T) lengths as queries, in (0, 1]. A row without
            neighbors stays as it is, with attention 0 and length 1.
        """
        seen = self._hide_neighbors(mask)
        if self.config.neighbors == "none":
            refined, _ = self._run(query, query[:, None], torch.ones_like(mask[:, :1]))
            return refined, torch.zeros_like(context[..., 0])[:, None].repeat(1, len(self.steps), 1)
        present = context.masked_fill(~seen[..., None], 0.0)
        refined, attention = self._run(query, present, seen)
        has_neighbor = seen.any(dim=1)[:, None, None]
        steps = torch.where(has_neighbor, refined, query[:, None])
        if radii is None or not self.levels:
            return steps, attention
        return steps, attention, self._log_lengths(steps, attention, query, present, seen, radii).exp()

    def log_lengths(
        self, steps: Tensor, attention: Tensor, query: Tensor, context: Tensor, mask: Tensor, radii: Tensor
    ) -> Tensor:
        """Logarithms of the lengths, for what `forward` made of the same batch.

        Args:
            steps: (B, T, d) embeddings after each step.
            attention: (B, T, k) of each step.
            query: (B, d) initial embeddings, L2-normalized.
            context: (B, k, d) initial embeddings of their neighbors, any values where there is none.
            mask: (B, k) of bool, where there is a neighbor.
            radii: (B, k, 3) of the neighbors; see `refine.neighbor_features.level_features`.

        Returns:
            (B, T), at most 0, and 0 for a row without neighbors; with a gradient for the level alone.

        Raises:
            RefinementError: The refiner has no level.
        """
        if not self.levels:
            raise RefinementError("this refiner has no level: set refiner.level")
        present = context.masked_fill(~mask[..., None], 0.0)
        return self._log_lengths(steps, attention, query, present, mask, radii)

    def _log_lengths(
        self, steps: Tensor, attention: Tensor, query: Tensor, context: Tensor, mask: Tensor, radii: Tensor
    ) -> Tensor:
        radii = radii.masked_fill(~mask[..., None], 0.0)
        lengths = [
            level(query, steps[:, step], attention[:, step], context, mask, radii)
            for step, level in enumerate(self.levels)
        ]
        return torch.stack(lengths, dim=1)

    def _run(self, query: Tensor, context: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        current, steps, attention = query, [], []
        for step, temperature in zip(self.steps, self._temperatures(), strict=True):
            if isinstance(step, GatedStep):
                current, weights = step(current, query, context, mask, temperature)
            else:
                current, weights = step(current, context, mask, temperature)
            steps.append(current)
            attention.append(weights)
        return torch.stack(steps, dim=1), torch.stack(attention, dim=1)

    def _temperatures(self) -> list[Tensor]:
        temperatures = self.log_temperature.exp()
        shared = len(temperatures) == 1
        return [temperatures[0 if shared else step] for step in range(len(self.steps))]

    def _hide_neighbors(self, mask: Tensor) -> Tensor:
        share = self.config.neighbor_dropout
        if not self.training or not share:
            return mask
        kept = mask & (torch.rand(mask.shape, device=mask.device) >= share)
        return torch.where(kept.any(dim=1, keepdim=True), kept, mask)

    @torch.no_grad()
    def step_arrays(self) -> list[dict[str, FloatArray]]:
        """Arrays of each step as `refine.refiner_weights` names them."""
        arrays = []
        for number, (step, temperature) in enumerate(zip(self.steps, self._temperatures(), strict=True)):
            inverse = (1.0 / temperature).reshape(1)
            one = torch.ones_like(inverse)
            named: dict[str, Tensor] = dict(step.named_parameters())
            if isinstance(step, GatedStep):
                named = step.arrays()
            for level in self.levels[number : number + 1]:
                named |= level.arrays() if isinstance(level, Level) else {}
            named["logit_scale"] = one if self.architecture.expansion else inverse
            named["expansion_scale"] = inverse
            names = parameter_shapes(self.architecture)
            arrays.append({name: named[name].detach().float().cpu().numpy() for name in names})
        return arrays


def _start(shape: tuple[int, ...], dim: int) -> Tensor:
    if len(shape) == 1:
        return torch.zeros(shape)
    # Glorot for the d x d matrix that the heads' parts make up.
    bound = math.sqrt(3.0 / dim)
    return torch.empty(shape).uniform_(-bound, bound)
