"""Metrics of embeddings: retrieval, by the ranks of mates; AUROC; and clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.models.errors import EvaluationError, MissingPackageError
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.ranking import item_ranks, mate_positions

# What embeddings are compared by; Euclidean ones are not normalized.
Distance = Literal["cosine", "euclidean"]
Mean = Literal["arithmetic", "geometric"]
_CUTOFF = 1000
_MEANS = ("r_precision", "map_at_r", "mean_average_precision", "map_at_1000")


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
        map_at_1000: Mean average precision over the first 1000: the sum of the precisions at the mates
            found there, divided by min(R, 1000), so that a perfect ranking scores 1 (the convention
            of Weyand et al., "Google Landmarks Dataset v2", CVPR 2020, eq. 1, there with 100). Others
            divide by R, or by the number of mates found; those figures are not comparable.
        n_queries: Queries that count.
        n_without_mates: Queries left out because the gallery has no mate for them.
    """

    hit_rate: dict[int, float]
    recall: dict[int, float]
    r_precision: float
    map_at_r: float
    mean_average_precision: float
    map_at_1000: float
    n_queries: int
    n_without_mates: int

    @property
    def figures(self) -> dict[str, float]:
        """All means by name, flat."""
        figures = {f"hit_rate_{k}": rate for k, rate in self.hit_rate.items()}
        figures |= {f"recall_{k}": rate for k, rate in self.recall.items()}
        return figures | {name: getattr(self, name) for name in _MEANS}


def retrieval_metrics(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    gallery_embeddings: npt.ArrayLike | None = None,
    gallery_labels: npt.ArrayLike | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: Distance = "cosine",
) -> RetrievalMetrics:
    """Rank a gallery for each query and average; ties are broken by gallery position.

    Queries (n, d) search a gallery (m, d), or without one each other, each without itself; embeddings may be
    normalized or not, which `euclidean` distances tell apart. `ks` are the ranks of `hit_rate` and `recall`.
    Refused with EvaluationError when no query has a mate, only one of the two gallery arguments is given, or
    numbers of embeddings and labels differ; with EmbeddingError when an embedding is zero or not finite.
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise EvaluationError("gallery_embeddings and gallery_labels go together")
    query_labels = np.asarray(labels)
    item_labels = query_labels if gallery_labels is None else np.asarray(gallery_labels)
    queries, items = _comparable(
        embeddings, embeddings if gallery_embeddings is None else gallery_embeddings, distance
    )
    for name, one, own in (("query", queries, query_labels), ("gallery", items, item_labels)):
        if len(one) != len(own):
            raise EvaluationError(f"{len(one)} {name} embeddings, but {len(own)} labels")
    mates = mate_positions(query_labels.tolist(), item_labels.tolist())
    itself = list(np.arange(len(queries))[:, None]) if gallery_embeddings is None else None
    ranks = item_ranks(queries, items, mates, itself)
    return _average([_of_query(one, ks) for one in ranks], ks)


def _comparable(
    embeddings: npt.ArrayLike, gallery: npt.ArrayLike, distance: Distance
) -> tuple[FloatArray, FloatArray]:
    """Queries and items, none longer than 1, whose products rise as the distance falls."""
    if distance == "cosine":
        queries = normalize(embeddings)
        return queries, queries if gallery is embeddings else normalize(gallery)
    raw, own = (np.asarray(one, np.float64) for one in (embeddings, gallery))
    if not np.isfinite(raw).all() or not np.isfinite(own).all():
        raise EvaluationError("an embedding holds values that are not finite")
    # |q - x|^2 = |q|^2 - 2 (q x - |x|^2 / 2); a shift and a scale of all keep the order, and the digits.
    center = own.mean(axis=0)
    raw, own = raw - center, own - center
    scale = max(_longest(own), 1e-300)
    lifted = np.column_stack([raw / scale, np.ones(len(raw))])
    items = np.column_stack([own / scale, -((own / scale) ** 2).sum(axis=1) / 2.0])
    return normalize(lifted), (items / max(_longest(items), 1.0)).astype(np.float32)


def _longest(rows: Floats) -> float:
    return float(np.linalg.norm(rows, axis=1).max(initial=0.0))


def _of_query(ranks: Ints, ks: Sequence[int]) -> list[float] | None:
    """R-precision, MAP@R, mAP, mAP@1000, hit rates and recalls of rising mate ranks, from 0; None without."""
    n_mates = len(ranks)
    if not n_mates:
        return None
    precision = np.arange(1, n_mates + 1) / (ranks + 1)
    # The precisions at the mates on ranks below any cutoff are the first of these.
    found = [int(n) for n in np.searchsorted(ranks, [n_mates, _CUTOFF, *ks])]
    within_r, within_cutoff, within_k = found[0], found[1], found[2:]
    return [
        within_r / n_mates,
        precision[:within_r].sum() / n_mates,
        precision.sum() / n_mates,
        precision[:within_cutoff].sum() / min(n_mates, _CUTOFF),
        *(float(n > 0) for n in within_k),
        *(n / n_mates for n in within_k),
    ]


def _average(per_query: Sequence[list[float] | None], ks: Sequence[int]) -> RetrievalMetrics:
    counted = [row for row in per_query if row is not None]
    if not counted:
        raise EvaluationError("no query has a mate in the gallery: there is nothing to measure")
    r_precision, map_at_r, mean_average_precision, map_at_1000, *rates = np.mean(counted, axis=0).tolist()
    return RetrievalMetrics(
        hit_rate=dict(zip(ks, rates[: len(ks)], strict=True)),
        recall=dict(zip(ks, rates[len(ks) :], strict=True)),
        r_precision=r_precision,
        map_at_r=map_at_r,
        mean_average_precision=mean_average_precision,
        map_at_1000=map_at_1000,
        n_queries=len(counted),
        n_without_mates=len(per_query) - len(counted),
    )


def auroc(with_mate: npt.ArrayLike, without_mate: npt.ArrayLike) -> float:
    """Area under the ROC curve: how often a query with a mate outscores one without by top score, ties half.

    Refused with EvaluationError when one of the two is empty, with MissingPackageError without scikit-learn.
    """
    positive, negative = np.asarray(with_mate), np.asarray(without_mate)
    if not len(positive) or not len(negative):
        raise EvaluationError("AUROC needs queries with and without a mate")
    truth = np.repeat([1, 0], [len(positive), len(negative)])
    return float(scikit_metrics().roc_auc_score(truth, np.concatenate([positive, negative])))


def scikit_metrics() -> Any:
    """`sklearn.metrics`, which only those who measure need."""
    try:
        from sklearn import metrics
    except ImportError as error:
        raise MissingPackageError("scikit-learn", "train", "measuring embeddings") from error
    return metrics


def clustering_nmi(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    seed: int = 0,
    mean: Mean = "arithmetic",
    distance: Distance = "cosine",
) -> float:
    """NMI between the labels and k-means clusters, as many as there are labels; see `nmi` and `k_means`.

    Refused with EmbeddingError when an embedding is zero or not finite, with MissingPackageError without
    Faiss or scikit-learn.
    """
    classes = np.unique(np.asarray(labels), return_inverse=True)[1]
    return nmi(classes, k_means(embeddings, int(classes.max()) + 1, seed=seed, distance=distance), mean=mean)


def k_means(
    embeddings: npt.ArrayLike,
    n_clusters: int,
    *,
    seed: int = 0,
    n_restarts: int = 3,
    n_iterations: int = 20,
    distance: Distance = "cosine",
) -> Ints:
    """(n,) clusters of embeddings (n, d), normalized for `cosine`, at most n, by the k-means of Faiss.

    The run with the smallest distances to the centroids is kept. The same machine gives the same clusters
    again for a seed; another one may round differently.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingPackageError("faiss", "cpu", "clustering embeddings") from error
    unit = normalize(embeddings) if distance == "cosine" else np.asarray(embeddings, np.float32)
    unit = np.ascontiguousarray(unit)
    if not 1 <= n_clusters <= len(unit):
        raise EvaluationError(f"{len(unit)} embeddings cannot make {n_clusters} clusters")
    # Without the two limits Faiss clusters a sample only, and warns about clusters of few points.
    kept = {"min_points_per_centroid": 1, "max_points_per_centroid": len(unit)}
    clustering = faiss.Kmeans(
        unit.shape[1], n_clusters, niter=n_iterations, nredo=n_restarts, seed=seed, gpu=False, **kept
    )
    clustering.train(unit)
    return clustering.index.search(unit, 1)[1][:, 0]


def nmi(labels: npt.ArrayLike, clusters: npt.ArrayLike, *, mean: Mean = "arithmetic") -> float:
    """Normalized mutual information, in [0, 1]; 1 when labels and clusters are the same partition.

    Divided by a mean of the two entropies: most papers take the arithmetic one, 2 I / (H + H'), some, as
    scikit-learn did before 0.22, the geometric one, which gives no less. Refused with EvaluationError when
    the two have different lengths or none, with MissingPackageError without scikit-learn.
    """
    first, second = np.asarray(labels), np.asarray(clusters)
    if len(first) != len(second) or not len(first):
        raise EvaluationError(f"{len(first)} labels and {len(second)} clusters do not describe one set")
    return float(scikit_metrics().normalized_mutual_info_score(first, second, average_method=mean))
