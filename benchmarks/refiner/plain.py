"""The paper's refiner as it is written: in every step, keys and values of all neighbors of every item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from vicinal.calibration.arrays import FloatArray
from vicinal.refine.context_refiner import ContextRefiner

__all__ = ["PlainTorch", "plain_gallery"]

_CHUNK = 256


class PlainTorch:
    """Algorithm 2 in torch's own modules.

    Args:
        refiner: Whose weights it takes; of the form `attention_mlp`.
    """

    def __init__(self, refiner: ContextRefiner) -> None:
        self._n_neighbors = refiner.n_neighbors
        heads = refiner.architecture.n_heads
        self._steps = [_step_of(weights, heads) for weights in refiner.weights]

    @torch.inference_mode()
    def refine_gallery(self, embeddings: FloatArray, neighbor_ids: Any) -> FloatArray:
        """(n, d) refined items, of which every one has all its neighbors."""
        items = torch.from_numpy(embeddings)
        nearest = torch.from_numpy(np.asarray(neighbor_ids, np.int64)[:, : self._n_neighbors])
        parts = zip(items.split(_CHUNK), nearest.split(_CHUNK), strict=True)
        refined: FloatArray = torch.cat([self._refined(rows, items[ids]) for rows, ids in parts]).numpy()
        return refined

    def _refined(self, rows: torch.Tensor, neighbors: torch.Tensor) -> torch.Tensor:
        current = rows[:, None]
        for attention, mlp in self._steps:
            current = current + attention(current, neighbors, neighbors, need_weights=False)[0]
            current = normalize(current + mlp(current), dim=-1)
        return current[:, 0]


def plain_gallery(refiner: ContextRefiner, embeddings: FloatArray, neighbor_ids: Any) -> FloatArray:
    """The same in numpy, chunk by chunk."""
    architecture, k = refiner.architecture, refiner.n_neighbors
    heads, width = architecture.n_heads, architecture.dim // architecture.n_heads
    refined = np.empty_like(embeddings)
    for start in range(0, len(embeddings), _CHUNK):
        rows = embeddings[start : start + _CHUNK]
        neighbors = embeddings[neighbor_ids[start : start + _CHUNK, :k]].reshape(-1, architecture.dim)
        n = len(rows)
        for weights in refiner.weights:
            key, value = _key_and_value(weights)
            queries = (rows @ weights["query"] + weights["query_bias"]).reshape(n, heads, 1, width)
            keys = (neighbors @ key).reshape(n, k, heads, width).transpose(0, 2, 3, 1)
            values = (neighbors @ value).reshape(n, k, heads, width).transpose(0, 2, 1, 3)
            logits = (queries @ keys) / np.float32(width**0.5)
            powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
            gathered = (powers / powers.sum(axis=-1, keepdims=True)) @ values
            rows = rows + gathered.reshape(n, -1) @ weights["output"] + weights["output_bias"]
            hidden = np.maximum(rows @ weights["hidden"] + weights["hidden_bias"], 0.0)
            rows = rows + hidden @ weights["mlp"] + weights["mlp_bias"]
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        refined[start : start + _CHUNK] = rows
    return refined


def _step_of(
    weights: Mapping[str, FloatArray], heads: int
) -> tuple[torch.nn.MultiheadAttention, Callable[[torch.Tensor], torch.Tensor]]:
    dim = len(weights["query"])
    attention = torch.nn.MultiheadAttention(dim, heads, batch_first=True).eval()
    hidden, output = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, dim)
    no_bias = np.zeros(2 * dim, np.float32)
    linear = np.concatenate([weights["query"], *_key_and_value(weights)], axis=1)
    pairs = {
        attention.in_proj_weight: linear.T,
        attention.in_proj_bias: np.concatenate([weights["query_bias"], no_bias]),
        attention.out_proj.weight: weights["output"].T,
        attention.out_proj.bias: weights["output_bias"],
        hidden.weight: weights["hidden"].T,
        hidden.bias: weights["hidden_bias"],
        output.weight: weights["mlp"].T,
        output.bias: weights["mlp_bias"],
    }
    with torch.no_grad():
        for parameter, array in pairs.items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
    return attention, torch.nn.Sequential(hidden, torch.nn.ReLU(), output)


def _key_and_value(weights: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The stored matrices as the paper has them: d x d, a head's columns beside each other."""
    dim = len(weights["query"])
    key = weights["key"].transpose(2, 0, 1).reshape(dim, dim)
    return key, weights["value"].transpose(1, 0, 2).reshape(dim, dim)
