"""Pairs of a batch: cosine similarities, classes, and means over a part of the pairs."""

from __future__ import annotations

import torch
from torch import Tensor

_SMALLEST_NORM = 1e-12


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
