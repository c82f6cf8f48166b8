"""Embedding sets: files, spaces, and splits by class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.refiner.embedding_set import EmbeddingSet, read_embedding_sets

X = np.random.default_rng(0).normal(size=(12, 4))
LABELS = np.repeat(["a", "b", "c", "d"], 3)
FOLDS = np.array([0] * 6 + [7] * 6)


def test_embeddings_are_normalized_and_spaces_numbered() -> None:
    items = EmbeddingSet.of(X, LABELS, FOLDS)
    np.testing.assert_allclose(np.linalg.norm(items.embeddings, axis=1), 1.0, rtol=0, atol=1e-6)
    assert items.spaces.tolist() == [0] * 6 + [1] * 6
    assert [one.tolist() for one in items.positions_by_space()] == [list(range(6)), list(range(6, 12))]


def test_split_by_class_takes_the_share_of_each_space() -> None:
    items = EmbeddingSet.of(
        np.tile(X, (4, 1)), np.repeat([f"c{i}" for i in range(16)], 3), np.repeat([0, 1], 24)
    )
    larger, held = items.split_classes(0.25, seed=3)
    assert not set(larger.labels) & set(held.labels)
    assert [len(np.unique(held.labels[held.spaces == space])) for space in (0, 1)] == [2, 2]
    assert sorted([*larger.labels, *held.labels]) == sorted(items.labels)


def _write(path: Path, **changes: Any) -> Path:
    arrays = {"embeddings": X, "labels": LABELS, "folds": FOLDS, **changes}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return path
    columns = {"embeddings": "embedding", "labels": "label", "folds": "fold"}
    pq.write_table(pa.table({columns[name]: list(array) for name, array in arrays.items()}), path)
    return path


@pytest.mark.parametrize("name", ["set.npz", "set.parquet"])
def test_a_file_gives_what_was_written(tmp_path: Path, name: str) -> None:
    items = read_embedding_sets([_write(tmp_path / name)])
    expected = EmbeddingSet.of(X, LABELS, FOLDS)
    np.testing.assert_array_equal(items.embeddings, expected.embeddings)
    assert items.labels.tolist() == LABELS.tolist()
    assert items.spaces.tolist() == expected.spaces.tolist()


@pytest.mark.parametrize("name", ["set.npz", "set.parquet"])
def test_rows_without_a_label_are_left_out(tmp_path: Path, name: str) -> None:
    """A null of Parquet would otherwise be a class by the name of None."""
    nothing = "" if name == "set.npz" else None
    items = read_embedding_sets([_write(tmp_path / name, labels=[nothing, "", *LABELS[2:]])])
    np.testing.assert_array_equal(items.embeddings, EmbeddingSet.of(X, LABELS).embeddings[2:])
    assert items.labels.tolist() == LABELS[2:].tolist()


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("set.npz", {"embeddings": None}, "has no array 'embeddings'"),
        ("set.parquet", {"labels": None}, "has no column 'label'"),
        ("set.npz", {"labels": [""] * 12}, "no row has a label"),
        ("set.npz", {"labels": LABELS[:5]}, r"labels of shape \(5,\)"),
        ("set.npz", {"embeddings": X * 0}, "embedding 0 is zero"),
        ("set.parquet", {"embeddings": [[1.0], *[[1.0, 2.0]] * 11]}, "different lengths"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, changes: Any, named: str) -> None:
    path = _write(tmp_path / name, **changes)
    with pytest.raises(RefinerTrainingError, match=rf"{name}.*{named}"):
        read_embedding_sets([path])
