"""Own refiner: what labels say of it, against slow ways and cases with a known end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.refiner.config import ValidationConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.own import choose_refiner, own_refiner
from vicinal.training.refiner.validation import Validation

DIM = 16


@pytest.fixture
def space(tmp_path: Path) -> ModelBundle:
    return ModelBundle(tmp_path / "space", space_manifest("made-up", DIM))


def regions(n_labels: int = 40, size: int = 8, noise: float = 0.9) -> EmbeddingSet:
    """Labels in regions of four; the noise is larger than the way from label to label."""
    rng = np.random.default_rng(0)
    region = np.repeat(rng.normal(size=(n_labels // 4, DIM)), 4, axis=0)
    centers = 1.5 * region + 0.8 * rng.normal(size=(n_labels, DIM))
    numbers = np.repeat(np.arange(n_labels), size)
    return EmbeddingSet.of(centers[numbers] + noise * rng.normal(size=(len(numbers), DIM)), numbers)


def nothing_alike() -> EmbeddingSet:
    """Labels that mean nothing: no neighbor can help."""
    items = regions()
    return EmbeddingSet.of(np.random.default_rng(1).normal(size=items.embeddings.shape), items.labels)


def test_labels_that_neighbors_tell_keep_it(space: ModelBundle, tmp_path: Path) -> None:
    found = choose_refiner(space, regions())
    assert found.helps
    written = found.write(tmp_path / "kept")
    assert written.manifest.refiner.sides == found.sides
    assert (written.path, written.fingerprint) == (space.path, space.fingerprint)
    rows = regions().embeddings
    before, after = (
        one.attend(rows[:9], rows[None, 9:17].repeat(9, axis=0)).embeddings
        for one in (own_refiner(space), ContextRefiner(written))
    )
    assert np.array_equal(before, after)


def test_labels_that_nothing_tells_do_not(space: ModelBundle) -> None:
    assert not choose_refiner(space, nothing_alike()).helps


def test_too_few_labels_are_refused_with_the_number_that_is_needed(space: ModelBundle) -> None:
    with pytest.raises(RefinerTrainingError, match="12 labels have two items or more, and at least 16 are"):
        choose_refiner(space, regions(12))


def test_a_visit_is_in_the_gallery_or_asked_for() -> None:
    plain = regions(20)
    visits = np.arange(len(plain)) // 3
    items = EmbeddingSet.of(plain.embeddings, plain.labels, visits=visits)
    # A visit of two labels is one of each.
    assert len(np.unique(items.visits)) == len({*zip(items.labels, visits, strict=True)})
    for search in Validation(items, 4, ValidationConfig(draws=4), seed=0)._searches:
        shared = np.intersect1d(items.visits[search.gallery], items.visits[search.queries])
        assert not len(shared)
        assert search.n_known
