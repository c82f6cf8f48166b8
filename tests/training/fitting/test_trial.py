"""Trial of a fitting: photos of one visit are kept apart."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from vicinal.training.fitting.trial import look_alikes
from vicinal.training.refiner.embedding_set import EmbeddingSet


def test_photos_far_more_alike_than_others_of_their_label_are_one_visit() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(8), 2, axis=0)[:12] + np.eye(8)[6] + 0.01 * rng.normal(size=(12, 8))
    labels = np.array(["cup"] * 8 + ["pot"] * 4, dtype=object)
    visits = look_alikes(EmbeddingSet.of(rows.astype(np.float32), labels))
    assert visits[:8].tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_pairs_of_a_label_tell_nothing_of_visits() -> None:
    rows = np.eye(8, dtype=np.float32)[[0, 0, 1, 1]]
    labels = np.array(["cup", "cup", "pot", "pot"], dtype=object)
    assert look_alikes(EmbeddingSet.of(rows, labels)).tolist() == [0, 1, 2, 3]
