"""Projection: a linear head that makes long features short, learnt without training a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray
from vicinal.models.errors import ConfigError, MissingPackageError

# Directions in which features hardly vary would be noise made loud.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Projection:
    """Linear layer: `features @ weight.T + bias`, with weight (d, width) and bias (d,), both float32."""

    weight: FloatArray
    bias: FloatArray

    def __call__(self, features: npt.ArrayLike) -> FloatArray:
        """Project (n, width) to (n, d), not normalized."""
        return np.asarray(np.asarray(features, np.float32) @ self.weight.T + self.bias, np.float32)


def from_classifier(classifier: npt.ArrayLike, dim: int) -> Projection:
    """The directions in which the rows of a classifier (classes, width) differ most; no image is needed.

    What the classifier does not look at does not tell classes apart: it is left out. The rows are
    orthonormal, so that what is kept keeps its angles.
    """
    matrix = np.asarray(classifier, np.float64)
    most = min(len(matrix) - 1, matrix.shape[1])
    if not 1 <= dim <= most:
        raise ConfigError(
            f"a classifier of {len(matrix):,} classes and {matrix.shape[1]:,} numbers gives embeddings of at "
            f"most {most:,} numbers, {dim:,} were asked for"
        )
    directions = np.linalg.svd(matrix - matrix.mean(axis=0), full_matrices=False)[2][:dim]
    return Projection(directions.astype(np.float32), np.zeros(dim, np.float32))


def from_features(features: npt.ArrayLike, dim: int, *, whitening: float = 0.0) -> Projection:
    """Principal components of features (n, width), n > `dim`, which are centered by it.

    Jegou and Chum, "Negative evidences and co-occurences in image retrieval: the benefit of PCA and
    whitening", ECCV 2012, section 3. Each component is divided by its standard deviation to the power
    `whitening`: 0 is PCA, 1 makes all components count alike, .5 is half-way.
    """
    matrix = np.asarray(features, np.float64)
    most = min(len(matrix) - 1, matrix.shape[1])
    if not 1 <= dim <= most:
        raise ConfigError(
            f"{len(matrix):,} images with {matrix.shape[1]:,} numbers each give embeddings of at most "
            f"{most:,} numbers, {dim:,} were asked for: ",
            advise("give more images or a smaller {dim}"),
        )
    if not 0.0 <= whitening <= 1.0:
        raise ConfigError(f"whitening is a number from 0 to 1, got {whitening:g}")
    try:
        from sklearn.decomposition import PCA
    except ImportError as error:
        raise MissingPackageError("scikit-learn", "train", "learning a projection") from error
    found = PCA(dim, svd_solver="covariance_eigh").fit(matrix)
    variances = np.maximum(found.explained_variance_, _LEAST_VARIANCE * found.explained_variance_[0])
    scales = (variances / variances[0]) ** (-whitening / 2.0)
    weight = scales[:, None] * found.components_
    return Projection(weight.astype(np.float32), (-weight @ found.mean_).astype(np.float32))
