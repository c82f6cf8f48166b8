"""Gates and level of a refiner, to be trained (torch); `refine.gates` does the same in numpy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.refine.gates import LEVEL_SHARPNESS, SMALLEST_SIMILARITY
from vicinal.refine.neighbor_features import N_GATE_FEATURES, N_LEVEL_FEATURES, gate_features, level_features
from vicinal.refine.training.config import RefinerConfig

__all__ = ["GatedStep", "Level", "features_of"]


class _NeighborNetwork(nn.Module):
    """Two layers over each neighbor, the second of which also sees the mean of all."""

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(B, k, h) from (B, k, F) features and a (B, k) mask."""
        first = functional.relu(self.first(features)) * mask[..., None]
        pooled = first.sum(dim=1, keepdim=True) / mask.sum(dim=1).clamp(min=1)[:, None, None]
        both = torch.cat([first, pooled.expand_as(first)], dim=-1)
        return functional.relu(self.second(both)) * mask[..., None]

    def arrays(self, name: str) -> dict[str, Tensor]:
        """Parameters as `refine.refiner_weights` names them."""
        return {
            f"{name}_in": self.first.weight.T,
            f"{name}_in_bias": self.first.bias,
            f"{name}_out": self.second.weight.T,
            f"{name}_out_bias": self.second.bias,
        }


class GatedStep(nn.Module):
    """One step of a gated refiner; it starts as softmax query expansion.

    Args:
        architecture: What is computed.
        config: Weight of the expansion that it starts with.
    """

    def __init__(self, architecture: RefinerArchitecture, config: RefinerConfig) -> None:
        super().__init__()
        width = architecture.gate_width
        self.network = _NeighborNetwork(N_GATE_FEATURES, width)
        self.logit = nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.zeros(width))
        self.expansion_weight = nn.Parameter(torch.tensor([config.expansion_weight]))

    def forward(
        self, rows: Tensor, initial: Tensor, context: Tensor, mask: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Refine embeddings once.

        Args:
            rows: (B, d) embeddings e^{t-1}.
            initial: (B, d) embeddings e^0.
            context: (B, k, d), with zeros where there is no neighbor.
            mask: (B, k) where there is one.
            temperature: Scalar that similarities are divided by.

        Returns:
            (B, d) embeddings e^t, L2-normalized, and (B, k) attention; both without meaning where a row has
            no neighbor.
        """
        present = mask.to(rows.dtype)
        features = features_of(rows, initial, context, present)
        hidden = self.network(features, present)
        logits = features[..., 0] / temperature + hidden @ self.logit
        # Not -inf: a row without neighbors would be NaN, and so would be every gradient.
        masked = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
        attention = masked.softmax(dim=-1) * present
        pooled = hidden.sum(dim=1) / present.sum(dim=1).clamp(min=1)[:, None]
        weight = self.expansion_weight + pooled @ self.weight
        gathered = torch.matmul(attention[:, None], context)[:, 0]
        return functional.normalize(rows + weight[:, None] * gathered, dim=-1), attention

    def arrays(self) -> dict[str, Tensor]:
        """Parameters as `refine.refiner_weights` names them."""
        return {
            "expansion_weight": self.expansion_weight,
            **self.network.arrays("gate"),
            "gate_logit": self.logit,
            "gate_weight": self.weight,
        }


class Level(nn.Module):
    """Length of a refined query; it starts by taking the pull of the refinement back.

    Args:
        architecture: What is computed.
    """

    def __init__(self, architecture: RefinerArchitecture) -> None:
        super().__init__()
        self.network = _NeighborNetwork(N_LEVEL_FEATURES, architecture.gate_width)
        self.scale = nn.Parameter(torch.ones(1))
        self.level_bias = nn.Parameter(torch.zeros(1))
        self.residual = nn.Parameter(torch.zeros(architecture.gate_width))

    def forward(
        self,
        initial: Tensor,
        refined: Tensor,
        attention: Tensor,
        context: Tensor,
        mask: Tensor,
        radii: Tensor,
    ) -> Tensor:
        """(B,) logarithms of lengths, at most 0, and 0 where a row has no neighbor.

        No gradient goes back to the direction: a level must not be bought with a worse ranking.

        Args:
            initial: (B, d) embeddings e^0.
            refined: (B, d) embeddings e^t.
            attention: (B, k) of the last step.
            context: (B, k, d), with zeros where there is no neighbor.
            mask: (B, k) where there is one.
            radii: (B, k, 3); see `refine.neighbor_features.level_features`.
        """
        refined, attention, present = refined.detach(), attention.detach(), mask.to(refined.dtype)
        gathered = functional.normalize(torch.matmul(attention[:, None], context)[:, 0], dim=-1)
        before, after = (
            (one * gathered).sum(dim=1).clamp(min=SMALLEST_SIMILARITY) for one in (initial, refined)
        )
        gates = features_of(refined, initial, context, present)
        seen = level_features(torch, gates, (initial * refined).sum(dim=1), present, radii)
        pooled = self.network(seen, present).sum(dim=1) / present.sum(dim=1).clamp(min=1)[:, None]
        z = self.scale * (before / after).log() + self.level_bias + pooled @ self.residual
        logarithm = -functional.softplus(-LEVEL_SHARPNESS * z) / LEVEL_SHARPNESS
        return torch.where(mask.any(dim=1), logarithm, torch.zeros_like(logarithm))

    def arrays(self) -> dict[str, Tensor]:
        """Parameters as `refine.refiner_weights` names them."""
        return {
            "level_scale": self.scale,
            "level_bias": self.level_bias,
            **self.network.arrays("level"),
            "level_residual": self.residual,
        }


def features_of(rows: Tensor, initial: Tensor, context: Tensor, present: Tensor) -> Tensor:
    """(B, k, 11) features of the neighbors; see `refine.neighbor_features.gate_features`."""
    turned = context.transpose(1, 2)
    current, first = (torch.matmul(one[:, None], turned)[:, 0] for one in (rows, initial))
    # A row without neighbors gets one, so that no mean is divided by zero: what it gives is not used.
    alone = (present.sum(dim=1, keepdim=True) == 0).to(present.dtype)
    counted = torch.cat([torch.clamp(present[:, :1] + alone, max=1.0), present[:, 1:]], dim=1)
    features: Tensor = gate_features(torch, current, first, torch.matmul(context, turned), counted)
    return features
