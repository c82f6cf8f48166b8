"""Registry of losses by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytorch_metric_learning import losses as published
from pytorch_metric_learning import miners
from torch import Tensor, nn

from models.config import LossConfig
from models.errors import ConfigError

__all__ = ["Loss", "MultiSimilarityLoss", "available_losses", "build_loss"]

Loss = Callable[[Tensor, Tensor], Tensor]


class MultiSimilarityLoss(nn.Module):
    """Multi-similarity loss with its pair mining.

    Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR 2019.

    Args:
        alpha: Weight of positive pairs.
        beta: Weight of negative pairs.
        base: Similarity around which pairs are weighted.
        mining_margin: Slack of the mining of informative pairs; None uses every pair.
    """

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, mining_margin: float | None = 0.1
    ) -> None:
        super().__init__()
        self._loss = published.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base)
        self._miner = None if mining_margin is None else miners.MultiSimilarityMiner(epsilon=mining_margin)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Loss of (n, d) embeddings, raw or normalized, with (n,) labels."""
        pairs = None if self._miner is None else self._miner(embeddings, labels)
        loss: Tensor = self._loss(embeddings, labels, pairs)
        return loss


_REGISTRY: dict[str, Callable[..., nn.Module]] = {"multi_similarity": MultiSimilarityLoss}


def available_losses() -> list[str]:
    """Names that `build_loss` knows, sorted."""
    return sorted(_REGISTRY)


def build_loss(config: LossConfig) -> nn.Module:
    """Create a loss by name.

    Raises:
        ConfigError: The name or an argument is unknown.
    """
    if config.name not in _REGISTRY:
        raise ConfigError(f"unknown loss '{config.name}': choose one of {', '.join(available_losses())}")
    arguments: dict[str, Any] = config.arguments
    try:
        return _REGISTRY[config.name](**arguments)
    except TypeError as error:
        raise ConfigError(f"loss '{config.name}': {error}") from error
