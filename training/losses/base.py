"""Base of every loss: one signature, its precision, how a batch is refused; and pairs of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vicinal.models.errors import ConfigError
from vicinal.training.evaluation.metrics import Distance

_SMALLEST_NORM = 1e-12


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

    Attributes:
        distance: What it compares embeddings by, and so has to be judged by.
    """

    distance: Distance = "cosine"

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


def normalized(embeddings: Tensor) -> Tensor:
    """(n, d) rows of length 1; a row of zeros stays zero and gets no gradient."""
    norms = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    # Dividing by a very small norm would give a gradient that drowns the rest of the batch.
    return embeddings / torch.where(norms > _SMALLEST_NORM, norms, torch.inf)


def cosine_similarities(embeddings: Tensor) -> Tensor:
    """(n, n) cosine similarities of (n, d) embeddings, raw or normalized."""
    rows = normalized(embeddings)
    return rows @ rows.T


def positive_pairs(labels: Tensor) -> Tensor:
    """(n, n) bool: two different items of one class."""
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)


def sizes_of_classes(labels: Tensor) -> Tensor:
    """(n,) number of items of each item's class in the batch."""
    ordered = labels.sort().values
    return torch.searchsorted(ordered, labels, right=True) - torch.searchsorted(ordered, labels)


def mean_where(values: Tensor, counted: Tensor) -> Tensor:
    """Mean of the values where `counted` is true; 0 with a graph where it is true nowhere."""
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp_min(1)
