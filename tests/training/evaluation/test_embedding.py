"""Embeddings of a data set in batches, and from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vicinal.models.embedder import Embedder
from vicinal.models.errors import EvaluationError
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.evaluation.measurement import embed_files, read_embeddings

Write = Callable[[Path, dict[str, tuple[int, int]]], None]


@pytest.fixture
def many(tmp_path: Path, write_pictures: Write) -> Path:
    """More pictures than one batch holds."""
    write_pictures(tmp_path, {f"{i % 7}/{i:03d}.png": (i % 7, i) for i in range(140)})
    return tmp_path


def test_batches_give_every_image_its_own_embedding(many: Path, embedder: Embedder) -> None:
    listing = list_images(FolderConfig(kind="folder", root=many))
    seen: list[tuple[str, int, int]] = []
    actual = embed_files(embedder, listing, on_progress=lambda *step: seen.append(step))
    alone = np.concatenate([embedder.embed([many / file.path]) for file in listing.files])
    np.testing.assert_allclose(actual, alone, rtol=0, atol=1e-6)
    assert seen == [("embed", done, 140) for done in (64, 128, 140)]


@pytest.mark.parametrize("roles", [None, ["test", "test", "absent"]])
def test_stored_embeddings_are_read_back(tmp_path: Path, roles: list[str] | None) -> None:
    arrays = {"embeddings": np.eye(3, dtype=np.float32), "labels": ["a", "a", "b"]}
    np.savez(tmp_path / "set.npz", **arrays, **({} if roles is None else {"roles": roles}))
    stored = read_embeddings(tmp_path / "set.npz")
    np.testing.assert_array_equal(stored.embeddings, np.eye(3))
    assert stored.labels.tolist() == ["a", "a", "b"]
    assert (stored.roles if stored.roles is None else stored.roles.tolist()) == roles


EYE = np.eye(2)
WRONG = {
    "no labels": ({"embeddings": EYE}, "has no array 'labels'"),
    "no embeddings": ({"labels": [0, 1]}, "has no array 'embeddings'"),
    "one vector": ({"embeddings": EYE[0], "labels": [0, 1]}, r"shape \(2,\)"),
    "whole numbers": ({"embeddings": EYE.astype(int), "labels": [0, 1]}, "type int64"),
    "other length": ({"embeddings": EYE, "labels": [0, 1, 1]}, r"labels of shape \(3,\), expected \(2,\)"),
    "roles of two": ({"embeddings": EYE, "labels": [0, 1], "roles": ["test"]}, "roles of shape"),
    "objects": ({"embeddings": EYE, "labels": np.array([0, "a"], object)}, "plain arrays"),
}


@pytest.mark.parametrize(("arrays", "reason"), WRONG.values(), ids=WRONG.keys())
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict, reason: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(EvaluationError, match=reason):
        read_embeddings(tmp_path / "set.npz")


@pytest.mark.parametrize("content", [b"words", b"PK\x03\x04 cut off", b"\x93NUMPY"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(EvaluationError, match=r"is no \.npz file"):
        read_embeddings(tmp_path / "set.npz")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "set.npz", embeddings=np.random.default_rng(0).normal(size=(50, 4)))
    content = bytearray((tmp_path / "set.npz").read_bytes())
    content[300:900] = bytes(600)
    (tmp_path / "set.npz").write_bytes(bytes(content))
    with pytest.raises(EvaluationError, match=r"is no \.npz file"):
        read_embeddings(tmp_path / "set.npz")
