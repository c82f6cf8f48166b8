"""Retrieval metrics in numpy, in chunks, with ties broken by gallery position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.similarity import normalize

__all__ = ["RetrievalMetrics", "auroc", "retrieval_metrics"]

_CHUNK = 512
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RetrievalMetrics:
    """Means over the queries that have a mate.

    Attributes:
        hit_rate: By k, share of queries with a mate among the first k; what most papers call R@k.
        recall: By k, mean share of a query's mates among the first k.
        r_precision: Share of mates among the first R, where R is the query's number of mates.
        map_at_r: Mean average precision over the first R (Musgrave et al., "A Metric Learning Reality
            Check", ECCV 2020, eq. 2).
        mean_average_precision: Mean average precision over the whole ranking.
        n_queries: Queries that count.
        n_without_mates: Queries left out because the gallery has no mate for them.
    """

    hit_rate: dict[int, float]
    recall: dict[int, float]
    r_precision: float
    map_at_r: float
    mean_average_precision: float
    n_queries: int
    n_without_mates: int


def retrieval_metrics(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    gallery_embeddings: npt.ArrayLike | None = None,
    gallery_labels: npt.ArrayLike | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
) -> RetrievalMetrics:
    """Rank a gallery for each query and average.

    Args:
        embeddings: (n, d) query embeddings, normalized or not.
        labels: (n,) their labels.
        gallery_embeddings: (m, d) gallery; None searches the queries among themselves, each without itself.
        gallery_labels: (m,) labels of the gallery.
        ks: Ranks of `hit_rate` and `recall`.

    Raises:
        ValueError: No query has a mate, or only one of the two gallery arguments is given.
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels go together")
    queries = normalize(embeddings).astype(np.float64)
    query_labels = np.asarray(labels)
    gallery, item_labels, leave_one_out = queries, query_labels, True
    if gallery_embeddings is not None:
        gallery, item_labels = normalize(gallery_embeddings).astype(np.float64), np.asarray(gallery_labels)
        leave_one_out = False
    rows = [
        _per_query(relevant, ks)
        for relevant in _rankings(queries, query_labels, gallery, item_labels, leave_one_out)
    ]
    per_query = np.concatenate(rows) if rows else np.empty((0, 3 + 2 * len(ks)))
    return _average(per_query, ks)


def _rankings(
    queries: Floats,
    query_labels: npt.NDArray[np.generic],
    gallery: Floats,
    item_labels: npt.NDArray[np.generic],
    leave_one_out: bool,
) -> Iterator[Bools]:
    """Whether each ranked item is a mate, (chunk, m) at a time; a query is never ranked for itself."""
    for start in range(0, len(queries), _CHUNK):
        # BLAS rounds the same pair differently by its place in the matrix: without this, equal items
        # would be ranked by the last bit instead of by gallery position.
        similarities = np.round(queries[start : start + _CHUNK] @ gallery.T, 7)
        n_rows = len(similarities)
        if leave_one_out:
            similarities[np.arange(n_rows), start + np.arange(n_rows)] = -np.inf
        order = np.argsort(-similarities, axis=1, kind="stable")
        relevant = item_labels[order] == query_labels[start : start + n_rows, None]
        # The query itself was pushed to the last rank.
        yield relevant[:, :-1] if leave_one_out else relevant


def _per_query(relevant: Bools, ks: Sequence[int]) -> Floats:
    """One row a query with mates, NaN for one without: R-precision, MAP@R, mAP, hit rates, recalls."""
    n_mates = relevant.sum(axis=1)
    ranks = np.arange(1, relevant.shape[1] + 1)
    hits = relevant.cumsum(axis=1)
    precision = np.where(relevant, hits / ranks, 0.0)
    within_r = ranks <= n_mates[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = [
            (relevant & within_r).sum(axis=1) / n_mates,
            (precision * within_r).sum(axis=1) / n_mates,
            precision.sum(axis=1) / n_mates,
        ]
        columns += [np.where(n_mates > 0, relevant[:, :k].any(axis=1), np.nan) for k in ks]
        columns += [relevant[:, :k].sum(axis=1) / n_mates for k in ks]
    return np.stack(columns, axis=1)


def _average(per_query: Floats, ks: Sequence[int]) -> RetrievalMetrics:
    counted = per_query[~np.isnan(per_query[:, 0])]
    if not len(counted):
        raise ValueError("no query has a mate in the gallery: there is nothing to measure")
    means = counted.mean(axis=0).tolist()
    n_ks = len(ks)
    return RetrievalMetrics(
        hit_rate=dict(zip(ks, means[3 : 3 + n_ks], strict=True)),
        recall=dict(zip(ks, means[3 + n_ks :], strict=True)),
        r_precision=means[0],
        map_at_r=means[1],
        mean_average_precision=means[2],
        n_queries=len(counted),
        n_without_mates=len(per_query) - len(counted),
    )


def auroc(with_mate: npt.ArrayLike, without_mate: npt.ArrayLike) -> float:
    """Area under the ROC curve: how often a query with a mate outscores one without, ties half.

    Args:
        with_mate: (n,) top scores of queries with a mate.
        without_mate: (m,) top scores of queries without.

    Raises:
        ValueError: One of the two is empty.
    """
    positive, negative = (np.sort(np.asarray(s, dtype=np.float64)) for s in (with_mate, without_mate))
    if not len(positive) or not len(negative):
        raise ValueError("AUROC needs queries with and without a mate")
    below = np.searchsorted(negative, positive, side="left")
    at_most = np.searchsorted(negative, positive, side="right")
    return float((below + at_most).mean() / (2 * len(negative)))
