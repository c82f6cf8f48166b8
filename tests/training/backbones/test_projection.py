"""Projection: a head from a classifier or from features, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.models.errors import ConfigError
from vicinal.training.backbones.projection import from_classifier, from_features

pytest.importorskip("sklearn")


@pytest.fixture
def features() -> np.ndarray:
    """300 points of 12 numbers with variances of 1 to 144, away from the origin."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    return (rng.normal(size=(300, 12)) * np.arange(12, 0, -1)) @ rotation + 5.0


def test_a_classifier_keeps_the_directions_in_which_its_rows_differ() -> None:
    """Rows that differ along two directions only: these two, whatever is common to all rows."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(8, 3)))[0].T
    classifier = rng.normal(size=(20, 2)) @ basis[:2] + 7.0 * basis[2]
    projection = from_classifier(classifier, 2)
    assert np.allclose(projection.weight @ projection.weight.T, np.eye(2), atol=1e-6)
    assert np.allclose(projection(basis[2]), 0.0, atol=1e-6)
    assert np.allclose(np.linalg.norm(projection(basis[:2]), axis=1), 1.0, atol=1e-6)


def test_components_equal_the_slow_way(features: np.ndarray) -> None:
    """Eigenvectors of the covariance matrix, with the signs that they happen to have."""
    projection = from_features(features, 4)
    centered = features - features.mean(axis=0)
    vectors = np.linalg.eigh(centered.T @ centered)[1]
    expected = centered @ vectors[:, ::-1][:, :4]
    assert np.allclose(np.abs(projection(features)), np.abs(expected), atol=1e-3)


@pytest.mark.parametrize("whitening", [0.0, 0.5, 1.0])
def test_whitening_divides_by_a_power_of_the_standard_deviation(
    features: np.ndarray, whitening: float
) -> None:
    plain = from_features(features, 6)(features).std(axis=0)
    whitened = from_features(features, 6, whitening=whitening)(features).std(axis=0)
    assert np.allclose(whitened / whitened[0], (plain / plain[0]) ** (1.0 - whitening), rtol=1e-3)


@pytest.mark.parametrize(
    ("learn", "message"),
    [
        (lambda: from_classifier(np.ones((5, 8)), 5), "at most 4 numbers, 5 were asked for"),
        (lambda: from_features(np.ones((9, 20)), 9), "9 images .* at most 8 numbers, 9 were asked for"),
        (lambda: from_features(np.ones((9, 4)), 2, whitening=1.5), "from 0 to 1, got 1.5"),
    ],
)
def test_what_cannot_be_learnt_is_one_line(learn: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        learn()
