"""Controls of the context refiner: what averaging neighbors does without any learning (numpy).

For evaluation only: a refiner is worth its weights when it does better than these. The paper's other control,
attention without neighbors, is an option of the network (`neighbors = "none"`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Mask
from vicinal.refine.step import masked_softmax, normalized_rows

__all__ = ["alpha_query_expansion", "mean_of_neighbors", "softmax_query_expansion"]


def mean_of_neighbors(
    queries: FloatArray, contexts: FloatArray, mask: Mask | None = None, *, weight: float = 1.0
) -> FloatArray:
    """Add the mean of the neighbors to each embedding: `normalise(e + weight mean_j c_j)`.

    Args:
        queries: (n, d) float32, L2-normalized.
        contexts: (n, k, d) float32 neighbors.
        mask: (n, k) where there is one; None where all are there.
        weight: Weight of the mean.

    Returns:
        (n, d) float32, L2-normalized; an embedding without neighbors stays as it is.
    """
    there, neighbors = _present(contexts, mask)
    shares = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    return _add(queries, neighbors, weight * shares, there)


def alpha_query_expansion(
    queries: FloatArray, contexts: FloatArray, mask: Mask | None = None, *, alpha: float = 3.0
) -> FloatArray:
    """Alpha query expansion: `normalise(e + sum_j max(0, <e, c_j>)^alpha c_j)`.

    Radenović et al., "Fine-tuning CNN Image Retrieval with No Human Annotation" (TPAMI 2019). For the other
    side, database augmentation, give it the items with their own neighbors.

    Args:
        queries: (n, d) float32, L2-normalized.
        contexts: (n, k, d) float32 neighbors.
        mask: (n, k) where there is one; None where all are there.
        alpha: 0 weighs all neighbors with a positive similarity alike.

    Returns:
        (n, d) float32, L2-normalized; an embedding without neighbors stays as it is.
    """
    there, neighbors = _present(contexts, mask)
    similarities = np.vecdot(neighbors, queries[:, None])
    weights = np.where(similarities > 0.0, np.abs(similarities) ** np.float32(alpha), 0.0)
    return _add(queries, neighbors, weights, there)


def softmax_query_expansion(
    queries: FloatArray,
    contexts: FloatArray,
    mask: Mask | None = None,
    *,
    temperature: float = 0.1,
    weight: float = 1.0,
    n_steps: int = 1,
) -> FloatArray:
    """Attention with Q, K and V the identity: `normalise(e + weight sum_j softmax_j(<e, c_j> / tau) c_j)`.

    Args:
        queries: (n, d) float32, L2-normalized.
        contexts: (n, k, d) float32 neighbors, the same in all steps.
        mask: (n, k) where there is one; None where all are there.
        temperature: tau, above 0.
        weight: Weight of the neighbors.
        n_steps: How often.

    Returns:
        (n, t, d) float32, L2-normalized, the embedding after each step; an embedding without neighbors stays
        as it is.
    """
    there, neighbors = _present(contexts, mask)
    steps, current = [], queries
    for _ in range(n_steps):
        logits = np.vecdot(neighbors, current[:, None]) / np.float32(temperature)
        shares = masked_softmax(np, logits, there)
        current = _add(current, neighbors, weight * shares, there)
        steps.append(current)
    return np.stack(steps, axis=1)


def _present(contexts: FloatArray, mask: Mask | None) -> tuple[Mask, FloatArray]:
    there: Mask = np.full(contexts.shape[:2], True)
    if mask is not None:
        there = np.asarray(mask, dtype=np.bool_)
    return there, np.where(there[..., None], contexts, np.float32(0.0))


def _add(queries: FloatArray, neighbors: FloatArray, weights: npt.ArrayLike, there: Mask) -> FloatArray:
    used = np.where(there, weights, 0.0).astype(np.float32)[:, None, :]
    expanded = normalized_rows(queries + (used @ neighbors)[:, 0])
    return np.where(there.any(axis=1, keepdims=True), expanded, queries)
