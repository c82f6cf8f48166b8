"""Which classes refiners are trained and chosen on, and in which space their embeddings lie."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.losses.features import Features
from benchmarks.refiner.embedded import N_FOLDS, Trained, in_one_space, prepare
from vicinal.models.similarity import normalize

N_CLASSES, PER_CLASS, DIM = 12, 6, 8


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return normalize(rng.standard_normal((N_CLASSES * PER_CLASS, DIM)))


LABELS = np.repeat([f"class {number:02}" for number in range(N_CLASSES)], PER_CLASS)
FOLDS = np.repeat(np.arange(N_CLASSES), PER_CLASS) % N_FOLDS


def part(rows: np.ndarray) -> tuple[np.ndarray, Features]:
    roles = np.resize(np.array(["gallery", "query"]), len(rows))
    roles[-PER_CLASS:] = "absent"
    return rows, Features(rows[:, None], LABELS, roles)


def test_a_fold_comes_from_the_base_that_never_saw_it(rows: np.ndarray) -> None:
    others = [np.where(FOLDS[:, None] == fold, -rows, rows) for fold in range(N_FOLDS)]
    np.testing.assert_allclose(in_one_space(rows, others, FOLDS), -rows, rtol=0, atol=1e-5)


def test_no_refiner_is_trained_on_a_class_that_chooses(rows: np.ndarray) -> None:
    embedded = prepare(Trained(LABELS, FOLDS, rows, rows), part(rows), part(rows))
    assert set(embedded.held_set.labels) == set(LABELS[FOLDS == N_FOLDS - 1])
    assert set(embedded.unseen.labels) == set(embedded.seen.labels) == set(LABELS[FOLDS != N_FOLDS - 1])
