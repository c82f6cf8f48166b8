"""NMI against the reference vectors and a double sum; k-means on clusters that cannot be missed."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.models.errors import MissingPackageError
from vicinal.training.evaluation import clustering_nmi, nmi


def _slow_nmi(labels: list[int], clusters: list[int], *, geometric: bool = False) -> float:
    """Double sum over labels and clusters, as the definition reads."""
    n = len(labels)
    information = 0.0
    for (label, cluster), joint in Counter(zip(labels, clusters, strict=True)).items():
        expected = labels.count(label) * clusters.count(cluster) / n**2
        information += joint / n * math.log(joint / n / expected)
    entropies = [-sum(c / n * math.log(c / n) for c in Counter(one).values()) for one in (labels, clusters)]
    return information / (math.sqrt(math.prod(entropies)) if geometric else sum(entropies) / 2)


def test_nmi_equals_the_reference_vectors(vectors_dir: Path) -> None:
    with np.load(vectors_dir / "metrics.npz") as stored:
        expected = float(stored["NMI_arithmetic"])
        assert nmi(stored["labels"], stored["cluster_labels"]) == pytest.approx(expected, rel=1e-11)


@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=30))
def test_nmi_equals_the_double_sum(pairs: list[tuple[int, int]]) -> None:
    labels, clusters = [list(one) for one in zip(*pairs, strict=True)]
    if len(set(labels)) + len(set(clusters)) > 2:
        assert nmi(labels, clusters) == pytest.approx(_slow_nmi(labels, clusters), abs=1e-12)


def test_nmi_may_be_divided_by_the_geometric_mean() -> None:
    labels, clusters = [0, 0, 1, 1, 2, 2, 2], [0, 0, 1, 1, 1, 1, 1]
    found = nmi(labels, clusters, mean="geometric")
    assert found == pytest.approx(_slow_nmi(labels, clusters, geometric=True), rel=1e-12)
    assert found > nmi(labels, clusters)


def test_clusters_of_unnormalized_embeddings_tell_lengths_apart() -> None:
    """Two clusters in one direction, which cosines take for one."""
    rng = np.random.default_rng(0)
    lengths = np.repeat([1.0, 9.0], 10)[:, None]
    embeddings = lengths * np.array([1.0, 1.0]) + 0.1 * rng.normal(size=(20, 2))
    assert clustering_nmi(embeddings, np.repeat([0, 1], 10), distance="euclidean") == pytest.approx(1.0)
    assert clustering_nmi(embeddings, np.repeat([0, 1], 10)) < 0.5


def test_moved_labels_fail_the_comparison() -> None:
    """Negative control."""
    labels, clusters = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 2]
    assert nmi(np.roll(labels, 1), clusters) != pytest.approx(_slow_nmi(labels, clusters), abs=1e-3)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingPackageError, match=r"needs scikit-learn: pip install '?efficientnet"):
        nmi([0, 1], [0, 1])
