"""Bases on cached features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.refiner.embedded import N_FOLDS, Wanted
from benchmarks.refiner.pretrained import ClassifierBase, HeadBase
from vicinal.models.similarity import normalize
from vicinal.training.refiner.embedding_set import EmbeddingSet

ROLES = {"train": ("train",), "calibration": ("gallery", "query"), "test": ("gallery", "query")}


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    """Features of 36 classes of six images in every part; the last six of calibration and test are absent."""
    (tmp_path / "features").mkdir()
    for seed, (split, roles) in enumerate(ROLES.items()):
        rng = np.random.default_rng(seed)
        centers = np.repeat(rng.standard_normal((36, 320)), 6, axis=0)
        views = normalize(centers + 4.0 * rng.standard_normal(centers.shape))[:, None]
        named = np.resize(np.array(roles), 216)
        if split != "train":
            named[180:] = "absent"
        labels = np.repeat([f"{split} {number:02}" for number in range(36)], 6)
        np.savez(tmp_path / "features" / f"grocery-{split}.npz", views=views, labels=labels, roles=named)
    return Wanted("grocery", 0, tmp_path / "nowhere", tmp_path)


def test_the_classifier_gives_orthonormal_directions() -> None:
    pytest.importorskip("timm")
    matrix = ClassifierBase(dim=16).matrix()
    assert matrix.shape == (1280, 16)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(16), rtol=0, atol=1e-5)


def test_a_head_sees_no_class_that_it_embeds_as_unseen(wanted: Wanted) -> None:
    embedded = HeadBase().embed(wanted)
    assert np.unique(embedded.unseen.spaces).tolist() == list(range(N_FOLDS - 1))
    assert purity(embedded.seen) > purity(embedded.unseen) + 0.05


def purity(items: EmbeddingSet) -> float:
    """Share of nearest neighbors of the same class."""
    nearest, _ = items.nearest(1, np.arange(len(items)))
    return float((items.labels[nearest[:, 0]] == items.labels).mean())
