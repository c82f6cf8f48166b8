"""Clustering quality: k-means with as many clusters as classes, and normalized mutual information."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Ints
from vicinal.models.errors import EvaluationError, MissingPackageError
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.metrics import scikit_metrics


def clustering_nmi(embeddings: npt.ArrayLike, labels: npt.ArrayLike, *, seed: int = 0) -> float:
    """NMI between the labels and k-means clusters of the unit embeddings, as many as there are labels.

    Refused with EmbeddingError when an embedding is zero or not finite, with MissingPackageError without
    Faiss or scikit-learn.
    """
    classes = np.unique(np.asarray(labels), return_inverse=True)[1]
    return nmi(classes, k_means(embeddings, int(classes.max()) + 1, seed=seed))


def k_means(
    embeddings: npt.ArrayLike, n_clusters: int, *, seed: int = 0, n_restarts: int = 3, n_iterations: int = 20
) -> Ints:
    """(n,) clusters of unit embeddings (n, d), at most n, by the k-means of Faiss.

    The run with the smallest distances to the centroids is kept. The same machine gives the same clusters
    again for a seed; another one may round differently.
    """
    unit = np.ascontiguousarray(normalize(embeddings))
    if not 1 <= n_clusters <= len(unit):
        raise EvaluationError(f"{len(unit)} embeddings cannot make {n_clusters} clusters")
    # Without the two limits Faiss clusters a sample only, and warns about clusters of few points.
    kept = {"min_points_per_centroid": 1, "max_points_per_centroid": len(unit)}
    clustering = _import_faiss().Kmeans(
        unit.shape[1], n_clusters, niter=n_iterations, nredo=n_restarts, seed=seed, gpu=False, **kept
    )
    clustering.train(unit)
    return clustering.index.search(unit, 1)[1][:, 0]


def nmi(labels: npt.ArrayLike, clusters: npt.ArrayLike) -> float:
    """Normalized mutual information, in [0, 1]; 1 when labels and clusters are the same partition.

    Divided by the arithmetic mean of the two entropies, as metric learning reports it. Refused with
    EvaluationError when the two have different lengths or none, with MissingPackageError without
    scikit-learn.
    """
    first, second = np.asarray(labels), np.asarray(clusters)
    if len(first) != len(second) or not len(first):
        raise EvaluationError(f"{len(first)} labels and {len(second)} clusters do not describe one set")
    return float(scikit_metrics().normalized_mutual_info_score(first, second))


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingPackageError("faiss", "cpu", "clustering embeddings") from error
    return faiss
