"""Contextual re-ranking: two images are alike when their neighborhoods are.

Liao et al., "Supervised Metric Learning to Rank for Retrieval via Contextual Similarity
Optimization" (CSO, ICML 2023), appendix I.5. On a set S, with squared distances D = 2 - 2 s and every
item its own first neighbor,

    N(i)     = { j : D_ij <= D_i(k) + eps }
    w_ij     = |N(i) ∩ N(j)| / |N(i)|  if j in N(i), else 0
    score_ij = beta w_ij + (1 - beta) exp(2 s_ij - 2)

For a query q the set is the gallery and the query, S = G + {q}. The score needs no search beyond the
query's own: N(q) is among its candidates, and whether x belongs to N(j) follows from the similarity of x
and j and the similarity of j to its (k-1)-th and k-th neighbor in G, which the index stores. The query
itself may push j's k-th neighbor out: the new k-th similarity is the middle one of those two and s_qj.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.models.similarity import exact_similarities, normalize, reaches

# Pairs of items that are compared at a time: their products take 64 MiB.
_MOST_PAIRS = 2**23


def dense_contextual_scores(similarities: npt.ArrayLike, k: int, beta: float, eps: float = 0.0) -> Floats:
    """Score every pair of a set from its (m, m) similarity matrix, ones on the diagonal: the plain reference.

    Gives (m, m) scores in [0, 1], row i the view of query i; `k`, `beta` and `eps` are those of `rerank`.
    """
    s = np.asarray(similarities, dtype=np.float64)
    kth = np.sort(s, axis=1)[:, -min(k, len(s))]
    member = s >= (kth - eps / 2.0)[:, None]
    # float32 holds counts exactly. The copy keeps numpy from its product of a matrix and its own transpose,
    # which ends the process from 20,000 rows on (numpy#19685).
    counts = member.astype(np.float32)
    contextual = (counts @ counts.T.copy()).astype(np.float64)
    contextual /= member.sum(axis=1)[:, None]
    contextual[~member] = 0.0
    del counts, member
    return _blend(contextual, s, beta)


def rerank(
    query: npt.ArrayLike, candidates: npt.ArrayLike, *, k: int = 8, beta: float = 0.1, eps: float = 0.05
) -> Floats:
    """Score the candidates of one query by what their neighborhoods share, for any search that found them.

    The neighborhoods are those among the query and its candidates, so give some hundred of these, not ten.
    With the whole gallery as candidates the scores are those of a search in it. The defaults are those of a
    gallery's own searches.

    Args:
        query: (d,) embedding, normalized or not.
        candidates: (m, d) embeddings of what was found, normalized or not, in any order, the query left out.
        k: Neighborhood size, the item itself counted; at most about the usual number of images a class.
        beta: Weight of the contextual similarity, in [0, 1].
        eps: Slack of the neighborhood on the squared distance, at least 0.

    Returns:
        (m,) scores in [0, 1], higher is more alike; `np.argsort(-scores)` is the new order.

    Raises:
        ValueError: The shapes do not fit, or an embedding holds NaN or only zeros.
    """
    asked, found = np.asarray(query), np.asarray(candidates)
    if asked.ndim != 1 or found.ndim != 2 or found.shape[1:] != asked.shape:
        raise ValueError(
            f"query has the shape {asked.shape} and candidates {found.shape}, expected (d,) and (m, d)"
        )
    rows = normalize(np.concatenate([asked[None], found]))
    similarities = exact_similarities(rows, rows[None])
    np.fill_diagonal(similarities, 1.0)
    return dense_contextual_scores(similarities, k, beta, eps)[0, 1:]


def _blend(contextual: npt.ArrayLike, similarities: npt.ArrayLike, beta: float) -> Floats:
    """`beta w + (1 - beta) exp(2 s - 2)`, in [0, 1] for w in [0, 1] and s in [-1, 1]."""
    scores = np.multiply(similarities, 2.0, dtype=np.float64)
    scores -= 2.0
    np.exp(scores, out=scores)
    scores *= 1.0 - beta
    scores += np.multiply(contextual, beta, dtype=np.float64)
    return scores


def kth_similarities(neighbor_similarities: FloatArray, k: int, removed: Mask | None = None) -> FloatArray:
    """(..., 2) float32 similarities of items to their (k-1)-th and k-th neighbor, themselves the first.

    They come from (..., K) descending similarities to the other items, -inf where there are fewer than K
    others, for k of 2 to K + 1. Neighbors that are `removed` count as not in the gallery: where a full list
    runs out, its last similarity stands in, as the true one is at most that.
    """
    width = neighbor_similarities.shape[-1]
    if not 2 <= k <= width + 1:
        raise ValueError(f"k must lie between 2 and {width + 1} for lists of {width} neighbors, got {k}")
    others = neighbor_similarities
    if removed is not None:
        lacking = removed.any(axis=-1)
        lists = neighbor_similarities[lacking]
        others = neighbor_similarities.copy()
        others[lacking] = -np.sort(-np.where(removed[lacking], lists[..., -1:], lists), axis=-1)
    itself = np.ones((*others.shape[:-1], 1), dtype=np.float32)
    # Column 0 is the item itself, so the k-th neighbor stands in column k - 1.
    return np.concatenate([itself, others], axis=-1)[..., k - 2 : k]


def neighborhood_radius(similarities: FloatArray, k: int, eps: float) -> Floats:
    """(B,) smallest similarity that still lies in each query's neighborhood, of descending (B, n) ones.

    The query itself counts as the first of k; -inf when the gallery has fewer than k - 1 items.
    """
    column = k - 2
    if column >= similarities.shape[1]:
        return np.full(len(similarities), -np.inf)
    # In float64: a float32 difference could drop the k-th neighbor itself.
    return similarities[:, column].astype(np.float64) - eps / 2.0


def neighborhood(similarities: FloatArray, k: int, eps: float) -> Mask:
    """(B, n) which candidates lie in each query's neighborhood: the first ones; see `neighborhood_radius`."""
    radius = neighborhood_radius(similarities, k, eps)[:, None]
    return np.isfinite(similarities) & (similarities >= radius)


def contextual_scores(
    similarities: FloatArray,
    embeddings: FloatArray,
    kth: FloatArray,
    *,
    k: int,
    beta: float,
    eps: float = 0.0,
    places: Ints | None = None,
) -> tuple[Floats, Floats]:
    """Score each query's candidates on S = G + {query}; a neighborhood of more than m items is a ValueError.

    A query that is itself an item of G is scored as if it were not: take it out of its own candidates and, by
    the `removed` of `kth_similarities`, out of their neighbor lists. The result is the dense formula on G.

    Equal to `dense_contextual_scores` on S as long as the candidates hold the whole neighborhood of the
    query. Each query is scored on its own: no score depends on the batch. `k`, `beta` and `eps` are those of
    `rerank`.

    Args:
        similarities: (B, n) exact cosine similarities, descending, -inf for padding.
        embeddings: (B, m, d) float32, L2-normalized, of the first m candidates; every `neighborhood` is among
            them. Or (v, d), of which `places` says whose they are.
        kth: (B, m, 2) similarity of each of these to its (k-1)-th and k-th neighbor in G; see
            `kth_similarities`.
        places: (B, m) where the embedding of each candidate stands among the (v, d). What queries have in
            common there is compared once; no score depends on it.

    Returns:
        (B, n) scores in [0, 1], -inf for padding, and (B, n) contextual similarities w in [0, 1].
    """
    valid = np.isfinite(similarities)
    inside = neighborhood(similarities, k, eps)
    sizes = inside.sum(axis=1)
    width = int(sizes.max(initial=0))
    if places is None:
        places = np.arange(embeddings.shape[0] * embeddings.shape[1]).reshape(embeddings.shape[:2])
        embeddings = embeddings.reshape(-1, embeddings.shape[2])
    if width > places.shape[1]:
        raise ValueError(f"a neighborhood has {width} candidates, got embeddings of {places.shape[1]}")
    contextual = np.zeros(similarities.shape)
    if width:
        # The query may have become a candidate's k-th neighbor.
        near, after = kth[:, :width, 1], np.minimum(kth[:, :width, 0], similarities[:, :width])
        radius = np.maximum(near, after).astype(np.float64) - eps / 2.0
        shared = _shared_neighbors(embeddings, places[:, :width], radius, inside[:, :width])
        shared += similarities[:, :width] >= radius
        # The query belongs to its own neighborhood and counts in its size.
        contextual[:, :width] = np.where(inside[:, :width], shared / (sizes + 1)[:, None], 0.0)
    return np.where(valid, _blend(contextual, similarities, beta), -np.inf), contextual


def _shared_neighbors(embeddings: FloatArray, places: Ints, radius: Floats, inside: Mask) -> Floats:
    """(B, w) number of members of N(q), the query left out, that belong to N(j) for each j in N(q)."""
    shared = _counted_once(embeddings, places, radius, inside)
    if shared is not None:
        return shared
    n, width = places.shape
    if n > 1 and n * width**2 > _MOST_PAIRS:
        halves = slice(n // 2), slice(n // 2, n)
        return np.concatenate(
            [_shared_neighbors(embeddings, places[one], radius[one], inside[one]) for one in halves]
        )
    counted = inside[:, None, :] & inside[:, :, None]
    member = reaches(embeddings[places], radius, counted) & inside[:, None, :]
    # An item is its own first neighbor, also where rounding puts its similarity to itself below 1.
    diagonal = np.arange(width)
    member[:, diagonal, diagonal] = inside
    return member.sum(axis=2, dtype=np.float64)


def _counted_once(embeddings: FloatArray, places: Ints, radius: Floats, inside: Mask) -> Floats | None:
    """`_shared_neighbors` where these are mostly the same for all queries; None where they are not.

    An item has one neighborhood for all queries that leave it the same radius.
    """
    is_member = np.zeros(len(embeddings), bool)
    is_member[places[inside]] = True
    n, most = int(is_member.sum()), min(int((inside.sum(axis=1) ** 2).sum()) // 2, _MOST_PAIRS)
    if n**2 > most:
        return None
    rows, items = np.nonzero(inside)[0], (is_member.cumsum() - 1)[places[inside]]
    ranks = np.unique(radius[inside], return_inverse=True)[1]
    _, first, row = np.unique(items * len(items) + ranks, return_index=True, return_inverse=True)
    if len(first) * n > most:
        return None
    asking = items[first]
    vectors = embeddings[is_member][None]
    member = reaches(vectors, radius[inside][None, first], np.ones((1, 1, 1), bool), asking)[0]
    member[np.arange(len(asking)), asking] = True
    among = np.zeros((len(places), n), np.float32)
    among[rows, items] = 1.0
    shared = np.zeros(places.shape)
    # float32 holds counts exactly.
    shared[inside] = (among @ member.T.astype(np.float32))[rows, row]
    return shared
