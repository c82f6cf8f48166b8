"""Views of an image, and the cache of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

from benchmarks.losses.features import load_features, view


def test_the_first_view_is_the_image_itself() -> None:
    image = Image.new("RGB", (9, 7))
    assert view(image, 0, np.random.default_rng(0)) is image


def test_another_view_is_a_part_of_the_image() -> None:
    shades = np.arange(30 * 20, dtype=np.uint16).reshape(30, 20)
    image = Image.fromarray((shades % 251).astype(np.uint8))
    rng = np.random.default_rng(0)
    sizes = {view(image, 1, rng).size for _ in range(20)}
    assert all(0.5 * 600 < width * height <= 600 for width, height in sizes)
    assert len(sizes) > 5


def test_features_that_are_cached_need_no_images(tmp_path: Path) -> None:
    roles = {"train": "train", "calibration": "gallery", "test": "query"}
    for split, role in roles.items():
        np.savez(
            tmp_path / f"set-{split}.npz",
            views=np.ones((3, 2, 4), np.float16),
            labels=np.array(["b", "a", "b"]),
            roles=np.array([role] * 3),
        )
    parts = load_features(tmp_path / "nowhere" / "set", tmp_path)
    assert parts.train.plain.shape == (3, 4)
    assert parts.train.class_ids.tolist() == [1, 0, 1]
    assert parts.test.subset(parts.test.labels == "b").roles.tolist() == ["query", "query"]
