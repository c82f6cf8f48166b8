"""Step of the context refiner, in numpy to serve and in torch to be trained: the same formulas.

Every function takes `xp`, `numpy` or `torch`, and arrays of that library.

**Attention** (forms `bare`, `attention`, `attention_mlp`). "Attend to Context for Refining Embeddings in Deep
Metric Learning" (ACR): an embedding e attends to its neighbors c_1 .. c_k, what it gathers is added, and the
sum is normalized: `CA(e, C) = A(e, C) + MLP(e + A(e, C))`. With a head's matrices Q, K and V,

    (Q e) . (K c_j) = (K' Q e) . c_j        sum_j a_j V c_j = V sum_j a_j c_j

so the neighbors themselves are never projected: a step costs the same few products for any k, and an item
needs no keys and values that would have to be stored for a gallery. A bias of K would shift all of a head's
logits alike, and one of V would add a constant to the output, whose bias does that: neither is needed.

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

In numpy no query depends on the rows beside it: every product is one of a stack, (n, 1, d) @ (d, d), whose
rows are computed one by one, each in the same order of additions. So a query is refined to the same bits
alone and in any batch, which a product (n, d) @ (d, d) does not give. Items of a gallery are refined with
such products, `together`: several times faster, and equal to some 1e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import matmul
from typing import Any

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.refine.neighbor_features import level_features, mean_neighbor, neighborhood_features

LEVEL_SHARPNESS = 10.0
# Below it a similarity says nothing any more, and its logarithm would say a lot.
SMALLEST_SIMILARITY = 0.02
# Not -inf: a row without neighbors would be NaN, and so would be every gradient.
_LOWEST_LOGIT = -1e9
_SMALLEST_NORM = 1e-12


def moved_rows(
    xp: Any,
    weights: Mapping[str, Any],
    architecture: RefinerArchitecture,
    rows: Any,
    initial: Any,
    context: Any,
    mask: Any,
    *,
    together: bool = True,
    drop: Callable[[Any], Any] = lambda units: units,
) -> tuple[Any, Any]:
    """(n, 1, d) embeddings after one step, not yet normalized, and (n, k) attention, the mean of the heads.

    `rows` are (n, 1, d) embeddings e^{t-1}, `initial` e^0, `context` (n, k, d) with zeros and `mask` (n, k)
    with 0 where there is no neighbor. A row without neighbors gets attention 0 and an embedding without
    meaning. Multiplying all rows `together` makes their bits depend on the batch in numpy. `drop` drops some
    of the output of attention and of the hidden units of an MLP, in training.
    """
    if architecture.form == "gated":
        return _gated(xp, weights, rows, initial, context, mask)
    times, by_heads = (_at_once, _heads_at_once) if together else (matmul, _heads_one_by_one)
    width, has_output = architecture.dim // architecture.n_heads, architecture.form != "bare"
    # In place where nothing else holds an array, here and below: memory is what a gallery waits for.
    queries = times(rows, weights["query"])
    if has_output:
        queries += weights["query_bias"]
    # The queries, and not what a head compares: they are as many times smaller as there are heads.
    queries = queries * (weights["logit_scale"] / math.sqrt(width))
    compared = by_heads(queries.reshape(-1, architecture.n_heads, width), weights["key"])
    if architecture.expansion:
        compared = compared + weights["expansion_scale"] * rows
    by_head = masked_softmax(xp, compared @ context.swapaxes(1, 2), mask[:, None])
    attention = by_head.mean(1)
    added = by_heads(by_head @ context, weights["value"]).reshape(-1, 1, architecture.dim)
    if has_output:
        added = times(added, weights["output"])
        added += weights["output_bias"]
        added = drop(added)
    if architecture.expansion:
        added = added + weights["expansion_weight"] * (attention[:, None] @ context)
    moved = rows + added
    if architecture.form == "attention_mlp":
        hidden = times(moved, weights["hidden"])
        hidden += weights["hidden_bias"]
        moved = moved + times(drop(_positive_part(hidden)), weights["mlp"])
        moved += weights["mlp_bias"]
    return moved, attention


def _gated(
    xp: Any, weights: Mapping[str, Any], rows: Any, initial: Any, context: Any, mask: Any
) -> tuple[Any, Any]:
    features = neighborhood_features(xp, rows, initial, context, mask)
    hidden = _seen_by_network(xp, weights, "gate", features, mask)
    logits = weights["expansion_scale"] * features[..., 0] + hidden @ weights["gate_logit"]
    attention = masked_softmax(xp, logits, mask)
    correction = (mean_neighbor(xp, hidden, mask) * weights["gate_weight"]).sum(-1)
    weight = weights["expansion_weight"] + correction
    return rows + weight[:, None, None] * (attention[:, None] @ context), attention


def log_lengths(
    xp: Any,
    weights: Mapping[str, Any],
    steps: tuple[Any, Any],
    attention: Any,
    context: Any,
    mask: Any,
    radii: Any,
) -> Any:
    """(n,) logarithms of the lengths of refined queries, at most 0; without meaning where no neighbor is.

    `steps` are e^0 and e^t, L2-normalized, `radii` (n, k, 3); the other arrays are those of `moved_rows`.
    """
    initial, refined = steps
    gathered = attention[:, None] @ context
    # Opposite neighbors can gather nothing: then neither similarity says anything.
    length = xp.clip((gathered * gathered).sum(-1), _SMALLEST_NORM**2, None) ** 0.5
    before, after = (
        xp.clip((one * gathered).sum(-1) / length, SMALLEST_SIMILARITY, None)[:, 0] for one in steps
    )
    features = neighborhood_features(xp, refined, initial, context, mask)
    turn = (initial * refined).sum(-1)[:, 0]
    seen = _seen_by_network(xp, weights, "level", level_features(xp, features, turn, mask, radii), mask)
    residual = (mean_neighbor(xp, seen, mask) * weights["level_residual"]).sum(-1)
    z = weights["level_scale"] * xp.log(before / after) + weights["level_bias"] + residual
    return -xp.logaddexp(-LEVEL_SHARPNESS * z, xp.zeros_like(z)) / LEVEL_SHARPNESS


def _seen_by_network(xp: Any, weights: Mapping[str, Any], name: str, features: Any, mask: Any) -> Any:
    """(n, k, h) what a network of two layers makes of each neighbor and of the mean of all."""
    first = _positive_part(features @ weights[f"{name}_in"] + weights[f"{name}_in_bias"]) * mask[..., None]
    mean = mean_neighbor(xp, first, mask)[:, None] * xp.ones_like(first)
    both = xp.concatenate([first, mean], -1)
    return _positive_part(both @ weights[f"{name}_out"] + weights[f"{name}_out_bias"]) * mask[..., None]


def masked_softmax(xp: Any, logits: Any, mask: Any) -> Any:
    """Softmax over the neighbors that are there, exactly 0 where there is none; all 0 without any."""
    masked = xp.where(mask > 0, logits, _LOWEST_LOGIT)
    powers = xp.exp(masked - xp.amax(masked, -1)[..., None]) * mask
    return powers / xp.clip(powers.sum(-1), _SMALLEST_NORM, None)[..., None]


def normalized_rows(rows: FloatArray) -> FloatArray:
    """(..., d) rows of length 1, in numpy; the length is summed in float64."""
    squares = np.vecdot(rows, rows, dtype=np.float64)
    scale = 1.0 / np.maximum(np.sqrt(squares), _SMALLEST_NORM)
    return np.asarray(rows * scale.astype(np.float32)[..., None])


def _positive_part(units: Any) -> Any:
    return units * (units > 0)


def _at_once(rows: Any, matrix: Any) -> Any:
    """(n, 1, b) from (n, 1, a) and (a, b), as one product."""
    return (rows[:, 0] @ matrix)[:, None]


def _heads_one_by_one(rows: Any, matrices: Any) -> Any:
    """(n, h, b) from (n, h, a) and (h, a, b)."""
    return (rows[:, :, None] @ matrices)[:, :, 0]


def _heads_at_once(rows: Any, matrices: Any) -> Any:
    """The same, as one product a head."""
    return (rows.swapaxes(0, 1) @ matrices).swapaxes(0, 1)
