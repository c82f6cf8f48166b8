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


def test_a_turned_space_is_turned_back(rows: np.ndarray) -> None:
    turns = [np.linalg.qr(np.random.default_rng(fold).standard_normal((DIM, DIM)))[0] for fold in (1, 2, 3)]
    turned = in_one_space(rows, [rows @ turn.astype(np.float32) for turn in turns], FOLDS)
    np.testing.assert_allclose(turned, rows, rtol=0, atol=1e-5)


def test_a_fold_comes_from_the_base_that_never_saw_it(rows: np.ndarray) -> None:
    others = [np.where(FOLDS[:, None] == fold, -rows, rows) for fold in range(N_FOLDS)]
    np.testing.assert_allclose(in_one_space(rows, others, FOLDS), -rows, rtol=0, atol=1e-5)


def test_no_refiner_is_trained_on_a_class_that_chooses(rows: np.ndarray) -> None:
    embedded = prepare(Trained(LABELS, FOLDS, rows, rows), part(rows), part(rows))
    assert set(embedded.held_set.labels) == set(LABELS[FOLDS == N_FOLDS - 1])
    assert set(embedded.unseen.labels) == set(embedded.seen.labels) == set(LABELS[FOLDS != N_FOLDS - 1])


def test_unseen_embeddings_of_folds_are_spaces_of_their_own(rows: np.ndarray) -> None:
    one = prepare(Trained(LABELS, FOLDS, rows, rows), part(rows), part(rows))
    several = prepare(Trained(LABELS, FOLDS, rows, rows.copy()), part(rows), part(rows))
    assert np.unique(one.unseen.spaces).tolist() == [0]
    assert np.unique(several.unseen.spaces).tolist() == [0, 1]


def test_a_study_may_take_few_classes(rows: np.ndarray) -> None:
    embedded = prepare(Trained(LABELS, FOLDS, rows, rows), part(rows), part(rows), most_kept=3, most_held=2)
    assert np.unique(embedded.seen.labels).tolist() == ["class 00", "class 01", "class 03"]
    assert np.unique(embedded.held_set.labels).tolist() == ["class 02", "class 05"]
