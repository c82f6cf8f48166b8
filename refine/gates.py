"""Gates and level of a refiner in numpy, in which no row depends on the rows beside it.

**Gates** (form `gated`): softmax query expansion, `e^t = normalise(e^{t-1} + w sum_j a_j c_j)`, whose
attention and weight are corrected by what a small network sees of the similarities in the neighborhood:

    a = softmax_j(<e^{t-1}, c_j> / tau + u . h_j)        w = w_0 + v . mean_j h_j

**Level** (queries only): refinement pulls a query toward the gallery, whether or not it has a mate there. Its
direction ranks the gallery; its length, at most 1, takes the pull back from the similarities:

    z = gamma log(<e^0, m> / <e^t, m>) + b + r . mean_j g_j        length = exp(-softplus(-10 z) / 10)

with m the direction of what attention gathered. With gamma 1 and r 0 the query keeps the similarity to its
neighborhood that it had before it was refined; g_j is seen by a small network as h_j is, and r learned from
queries with and without mates. Inner products with unit items are the scores: as if a query had one more
dimension in which no item lies.
"""

from __future__ import annotations

import numpy as np

from vicinal.models.similarity import FloatArray
from vicinal.refine.neighbor_features import gate_features, level_features
from vicinal.refine.refiner_weights import Weights

__all__ = ["LEVEL_SHARPNESS", "SMALLEST_SIMILARITY", "gated_attention", "level", "neighborhood_features"]

LEVEL_SHARPNESS = 10.0
# Below it a similarity says nothing any more, and its logarithm would say a lot.
SMALLEST_SIMILARITY = 0.02
_LOWEST_LOGIT = -1e9
_SMALLEST_NORM = 1e-12


def neighborhood_features(
    rows: FloatArray, initial: FloatArray, context: FloatArray, mask: FloatArray
) -> FloatArray:
    """(n, k, 11) features of the neighbors.

    Args:
        rows: (n, 1, d) embeddings e^{t}.
        initial: (n, 1, d) embeddings e^0.
        context: (n, k, d), with zeros where there is no neighbor.
        mask: (n, k) float32, 1 where there is one; at least one a row.
    """
    turned = context.transpose(0, 2, 1)
    features: FloatArray = gate_features(
        np, (rows @ turned)[:, 0], (initial @ turned)[:, 0], context @ turned, mask
    )
    return features.astype(np.float32)


def gated_attention(
    weights: Weights, features: FloatArray, mask: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Attention to the neighbors, and the weight of what it gathers.

    Args:
        weights: Arrays of this step.
        features: (n, k, 11) of `neighborhood_features`.
        mask: (n, k) float32, 1 where there is a neighbor.

    Returns:
        (n, k) attention with sum 1, and (n,) weights.
    """
    hidden = _hidden(weights, "gate", features, mask)
    logits = weights["expansion_scale"] * features[..., 0] + (hidden @ weights["gate_logit"])
    logits = np.where(mask > 0, logits, np.float32(_LOWEST_LOGIT))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True)) * mask
    pooled = hidden.sum(axis=1) / mask.sum(axis=1)[:, None]
    attention = powers / powers.sum(axis=1, keepdims=True)
    return attention, weights["expansion_weight"] + np.vecdot(pooled, weights["gate_weight"][None])


def level(
    weights: Weights,
    steps: tuple[FloatArray, FloatArray],
    gathered: FloatArray,
    features: FloatArray,
    mask: FloatArray,
    radii: FloatArray,
) -> FloatArray:
    """(n,) lengths of refined queries, in (0, 1].

    Args:
        weights: Arrays of this step.
        steps: (n, d) embeddings e^0 and e^t, L2-normalized.
        gathered: (n, d) what attention gathered in this step.
        features: (n, k, 11) of `neighborhood_features` of e^t.
        mask: (n, k) float32, 1 where there is a neighbor.
        radii: (n, k, 3); see `refine.neighbor_features.level_features`.
    """
    initial, refined = steps
    # Opposite neighbors can gather nothing: then neither similarity says anything.
    length = np.maximum(np.linalg.norm(gathered, axis=1), _SMALLEST_NORM)
    before, after = (np.maximum(np.vecdot(one, gathered), SMALLEST_SIMILARITY * length) for one in steps)
    seen = level_features(np, features, np.vecdot(initial, refined), mask, radii).astype(np.float32)
    hidden = _hidden(weights, "level", seen, mask)
    pooled = hidden.sum(axis=1) / mask.sum(axis=1)[:, None]
    z = weights["level_scale"] * np.log(before / after) + weights["level_bias"]
    z = z + np.vecdot(pooled, weights["level_residual"][None])
    lengths: FloatArray = np.exp(-np.logaddexp(0.0, -LEVEL_SHARPNESS * z) / LEVEL_SHARPNESS)
    return lengths.astype(np.float32)


def _hidden(weights: Weights, name: str, features: FloatArray, mask: FloatArray) -> FloatArray:
    """(n, k, h) what the small network makes of each neighbor and of the mean of all."""
    first = np.maximum(features @ weights[f"{name}_in"] + weights[f"{name}_in_bias"], 0.0) * mask[..., None]
    pooled = first.sum(axis=1, keepdims=True) / mask.sum(axis=1)[:, None, None]
    both = np.concatenate([first, np.broadcast_to(pooled, first.shape)], axis=-1)
    second = np.maximum(both @ weights[f"{name}_out"] + weights[f"{name}_out_bias"], 0.0)
    hidden: FloatArray = (second * mask[..., None]).astype(np.float32)
    return hidden
