"""One step of the context refiner in numpy, in which no row depends on the rows beside it.

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR): an embedding e attends
to its neighbors c_1 .. c_k, what it gathers is added, and the sum is normalized. With a head's matrices Q, K
and V,

    (Q e) . (K c_j) = (K' Q e) . c_j        sum_j a_j V c_j = V sum_j a_j c_j

so the neighbors themselves are never projected: a step costs the same few products for any k, and an item
needs no keys and values that would have to be stored for a gallery. A bias of K would shift all of a head's
logits alike, and one of V would add a constant to the output, whose bias does that: neither is needed.

Every product is one of a stack, (n, 1, d) @ (d, d): numpy computes the rows one by one, each in the same
order of additions. So an embedding is refined to the same bits alone and in any batch, which a product
(n, d) @ (d, d) does not give.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from models.refiner_manifest import RefinerArchitecture
from models.similarity import FloatArray
from refine.gates import gated_attention, neighborhood_features
from refine.refiner_weights import Weights

__all__ = ["Bools", "attention_weights", "gated_step", "normalized_rows", "refine_step"]

Bools = npt.NDArray[np.bool_]
_SMALLEST_NORM = 1e-12


def refine_step(
    weights: Weights, architecture: RefinerArchitecture, rows: FloatArray, context: FloatArray, mask: Bools
) -> tuple[FloatArray, FloatArray]:
    """Refine embeddings once.

    Args:
        weights: Arrays of this step; see `refine.refiner_weights.parameter_shapes`.
        architecture: What they belong to.
        rows: (n, 1, d) float32 embeddings e^{t-1}.
        context: (n, k, d) float32, with zeros where there is no neighbor.
        mask: (n, k) where there is one; at least one a row.

    Returns:
        (n, 1, d) embeddings e^t, L2-normalized, and (n, k) attention, the mean of the heads.
    """
    logits = _head_queries(weights, architecture, rows) @ context.transpose(0, 2, 1)
    by_head = attention_weights(logits, mask[:, None, :])
    attention = by_head.mean(axis=1)
    n, dim = len(rows), architecture.dim
    gathered = (by_head @ context)[:, :, None, :]
    added = np.asarray((gathered @ weights["value"]).reshape(n, 1, dim), dtype=np.float32)
    if architecture.form != "bare":
        added = added @ weights["output"] + weights["output_bias"]
    if architecture.expansion:
        added += weights["expansion_weight"] * (attention[:, None, :] @ context)
    refined = rows + added
    if architecture.form == "attention_mlp":
        hidden = np.maximum(refined @ weights["hidden"] + weights["hidden_bias"], np.float32(0.0))
        refined += hidden @ weights["mlp"] + weights["mlp_bias"]
    return normalized_rows(refined), attention


def gated_step(
    weights: Weights, rows: FloatArray, initial: FloatArray, context: FloatArray, mask: Bools
) -> tuple[FloatArray, FloatArray]:
    """Refine embeddings once with a gated refiner; see `refine.gates`.

    Args:
        weights: Arrays of this step.
        rows: (n, 1, d) float32 embeddings e^{t-1}.
        initial: (n, 1, d) embeddings e^0.
        context: (n, k, d) float32, with zeros where there is no neighbor.
        mask: (n, k) where there is one; at least one a row.

    Returns:
        (n, 1, d) embeddings e^t, L2-normalized, and (n, k) attention.
    """
    present = mask.astype(np.float32)
    features = neighborhood_features(rows, initial, context, present)
    attention, weight = gated_attention(weights, features, present)
    refined = rows + weight[:, None, None] * (attention[:, None] @ context)
    return normalized_rows(refined), attention


def _head_queries(weights: Weights, architecture: RefinerArchitecture, rows: FloatArray) -> FloatArray:
    """(n, h, d) what each head compares with the neighbors, in the space of the embeddings."""
    n, dim, heads = len(rows), architecture.dim, architecture.n_heads
    queries = rows @ weights["query"]
    if architecture.form != "bare":
        queries += weights["query_bias"]
    by_head = queries.reshape(n, heads, 1, dim // heads) @ weights["key"]
    scaled = by_head.reshape(n, heads, dim) * (weights["logit_scale"] / np.float32(math.sqrt(dim // heads)))
    return scaled + weights["expansion_scale"] * rows if architecture.expansion else scaled


def attention_weights(logits: FloatArray, mask: Bools) -> FloatArray:
    """Softmax over the neighbors that are there.

    Args:
        logits: (..., k) float32.
        mask: Broadcastable to `logits`; at least one neighbor a row.

    Returns:
        (..., k) float32 with sum 1, exactly 0 where there is no neighbor.
    """
    masked = np.where(mask, logits, -np.inf)
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def normalized_rows(rows: FloatArray) -> FloatArray:
    """(..., d) rows of length 1; the length is summed in float64."""
    squares = np.vecdot(rows, rows, dtype=np.float64)
    return (rows / np.maximum(np.sqrt(squares), _SMALLEST_NORM)[..., None]).astype(np.float32)
