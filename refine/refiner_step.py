"""One step of the context refiner in numpy, in which no row depends on the rows beside it.

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR): an embedding e attends
to its neighbors c_1 .. c_k, what it gathers is added, and the sum is normalized. With a head's matrices Q, K
and V,

    (Q e) . (K c_j) = (K' Q e) . c_j        sum_j a_j V c_j = V sum_j a_j c_j

so the neighbors themselves are never projected: a step costs the same few products for any k, and an item
needs no keys and values that would have to be stored for a gallery. A bias of K would shift all of a head's
logits alike, and one of V would add a constant to the output, whose bias does that: neither is needed.

Every product of queries is one of a stack, (n, 1, d) @ (d, d): numpy computes the rows one by one, each in
the same order of additions. So a query is refined to the same bits alone and in any batch, which a product
(n, d) @ (d, d) does not give. Items of a gallery are refined with such products, `together`: several times
faster, and equal to some 1e-7.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.models.similarity import FloatArray
from vicinal.refine.gates import gated_attention, neighborhood_features
from vicinal.refine.refiner_weights import Weights

__all__ = ["Bools", "attention_weights", "gated_step", "normalized_rows", "refine_step"]

Bools = npt.NDArray[np.bool_]
_SMALLEST_NORM = 1e-12


def refine_step(
    weights: Weights,
    architecture: RefinerArchitecture,
    rows: FloatArray,
    context: FloatArray,
    mask: Bools,
    *,
    together: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Refine embeddings once.

    Args:
        weights: Arrays of this step; see `refine.refiner_weights.parameter_shapes`.
        architecture: What they belong to.
        rows: (n, 1, d) float32 embeddings e^{t-1}.
        context: (n, k, d) float32, with zeros where there is no neighbor.
        mask: (n, k) where there is one; at least one a row.
        together: Multiply all rows at once; their bits then depend on the batch.

    Returns:
        (n, 1, d) embeddings e^t, L2-normalized, and (n, k) attention, the mean of the heads.
    """
    times, by_heads = (_at_once, _heads_at_once) if together else (_one_by_one, _heads_one_by_one)
    logits = _head_queries(weights, architecture, rows, together) @ context.transpose(0, 2, 1)
    by_head = attention_weights(logits, mask[:, None, :])
    attention = by_head.mean(axis=1)
    added = by_heads(by_head @ context, weights["value"]).reshape(len(rows), 1, architecture.dim)
    if architecture.form != "bare":
        added = times(added, weights["output"])
        added += weights["output_bias"]
    if architecture.expansion:
        added += weights["expansion_weight"] * (attention[:, None, :] @ context)
    added += rows
    if architecture.form == "attention_mlp":
        hidden = times(added, weights["hidden"])
        hidden += weights["hidden_bias"]
        np.maximum(hidden, np.float32(0.0), out=hidden)
        added += times(hidden, weights["mlp"])
        added += weights["mlp_bias"]
    return normalized_rows(added), attention


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


def _head_queries(
    weights: Weights, architecture: RefinerArchitecture, rows: FloatArray, together: bool
) -> FloatArray:
    """(n, h, d) what each head compares with the neighbors, in the space of the embeddings."""
    times, by_heads = (_at_once, _heads_at_once) if together else (_one_by_one, _heads_one_by_one)
    n, dim, heads = len(rows), architecture.dim, architecture.n_heads
    queries = times(rows, weights["query"])
    if architecture.form != "bare":
        queries += weights["query_bias"]
    by_head = by_heads(queries.reshape(n, heads, dim // heads), weights["key"])
    by_head *= weights["logit_scale"] / np.float32(math.sqrt(dim // heads))
    return by_head + weights["expansion_scale"] * rows if architecture.expansion else by_head


def _one_by_one(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """(n, 1, b) from (n, 1, a) and (a, b)."""
    return np.asarray(rows @ matrix, dtype=np.float32)


def _at_once(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """The same, as one product."""
    return np.asarray((rows[:, 0] @ matrix)[:, None], dtype=np.float32)


def _heads_one_by_one(rows: FloatArray, matrices: FloatArray) -> FloatArray:
    """(n, h, b) from (n, h, a) and (h, a, b)."""
    return np.asarray((rows[:, :, None] @ matrices)[:, :, 0], dtype=np.float32)


def _heads_at_once(rows: FloatArray, matrices: FloatArray) -> FloatArray:
    """The same, as one product a head."""
    products = np.empty((*rows.shape[:2], matrices.shape[2]), np.float32)
    np.matmul(rows.transpose(1, 0, 2), matrices, out=products.transpose(1, 0, 2))
    return products


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
    scale = 1.0 / np.maximum(np.sqrt(squares), _SMALLEST_NORM)
    return np.asarray(rows * scale.astype(np.float32)[..., None])
