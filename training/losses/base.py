"""Base of every loss: one signature, its precision, and how a batch is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vicinal.models.errors import ConfigError


@dataclass(frozen=True)
class Memory:
    """Embeddings of earlier batches and of this one, without a graph: (m, d), raw or normalized as they came,
    their labels, and the (n,) rows that hold the copies of this batch, in its order.
    """

    embeddings: Tensor
    labels: Tensor
    own: Tensor


class MetricLoss(nn.Module, ABC):
    """A loss of a batch of embeddings and labels.

    It is computed in float32, also under autocast and for shorter floats, and in float64 for float64
    embeddings. It looks at no value on the host, so that an accelerator is not waited for, unless a class
    says otherwise.
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Loss of (n, d) embeddings, n >= 1, raw or normalized: scalar, 0 with a graph if nothing counts."""
        with _full_precision(embeddings, labels) as (wide, own_labels):
            return self.compute(wide, own_labels)

    def against(self, embeddings: Tensor, labels: Tensor, memory: Memory) -> Tensor:
        """Loss of one batch against a memory; a loss of single batches leaves the memory aside."""
        with _full_precision(embeddings, labels) as (wide, own_labels):
            return self.compute_against(wide, own_labels, memory)

    @abstractmethod
    def compute(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The formula, on float32 or float64 embeddings and with autocast off."""

    def compute_against(self, embeddings: Tensor, labels: Tensor, memory: Memory) -> Tensor:  # noqa: ARG002
        """The formula against a memory, on embeddings as in `compute`."""
        return self.compute(embeddings, labels)


def readable(labels: Tensor) -> bool:
    """Tell if the host can look at labels without waiting for an accelerator."""
    return labels.device.type == "cpu"


def required(loss: Tensor, condition: Tensor, message: str) -> Tensor:
    """The loss where a condition on the batch holds."""
    if not readable(condition):
        return torch.where(condition, loss, torch.nan)
    if not condition:
        raise ConfigError(message)
    return loss


@contextmanager
def _full_precision(embeddings: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1] or not len(labels):
        raise ValueError(
            "a loss expects embeddings (n, d) and labels (n,) of at least one item, "
            f"got {tuple(embeddings.shape)} and {tuple(labels.shape)}"
        )
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    with torch.autocast(embeddings.device.type, enabled=False):
        yield embeddings.to(dtype), labels.to(embeddings.device).contiguous()
