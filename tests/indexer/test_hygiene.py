"""Hygiene: duplicates and thin classes are found, and different pictures are left alone."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vicinal.indexer.duplicates.signatures import SIGNATURE_SIDE
from vicinal.indexer.hygiene import Hygiene, are_near_equal, examine

Encoded = bytes


def _encoded(image: Image.Image, image_format: str = "PNG", **options: object) -> Encoded:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def _photo(seed: int, side: int = 64) -> Image.Image:
    """A smooth random picture, as JPEG keeps them."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def _signature(encoded: Encoded) -> np.ndarray:
    small = Image.open(io.BytesIO(encoded)).convert("RGB").resize((SIGNATURE_SIDE, SIGNATURE_SIDE))
    return np.asarray(small, dtype=np.uint8).reshape(-1)


def _examine(
    files: list[Encoded], labels: list[str | None] | None = None, similarity: float = 1.0
) -> Hygiene:
    """Examine files that are all near each other in the embedding."""
    n = len(files)
    others = [[j for j in range(n) if j != i] + [-1] for i in range(n)]
    similarities = np.where(np.array(others) < 0, -np.inf, similarity)
    return examine(
        ids=[f"item {i}" for i in range(n)],
        labels=["one class"] * n if labels is None else labels,
        contents=[hashlib.sha256(file).digest() for file in files],
        signatures=np.stack([_signature(file) for file in files]),
        neighbor_ids=np.array(others, dtype=np.int32),
        neighbor_similarities=similarities.astype(np.float32),
    )


@pytest.mark.parametrize("quality", [90, 50])
def test_resaved_jpeg_is_a_near_duplicate(quality: int) -> None:
    files = [_encoded(_photo(0)), _encoded(_photo(1)), _encoded(_photo(0), "JPEG", quality=quality)]
    found = _examine(files)
    assert (found.n_exact_duplicates, found.n_near_duplicates) == (0, 1)
    assert found.near_duplicates == [("item 0", "item 2")]


def test_no_pairs_are_no_near_duplicates() -> None:
    none = np.empty((0, 768), np.uint8)
    assert are_near_equal(np.empty(0, np.float32), none, none).tolist() == []


def test_duplicates_of_another_label_conflict() -> None:
    files = [_encoded(_photo(0)), _encoded(_photo(0)), _encoded(_photo(0), "JPEG")]
    found = _examine(files, ["boots", "sandals", "boots"])
    assert found.n_conflicting_labels == 2
    assert found.conflicting_labels == [("item 0", "item 1"), ("item 1", "item 2")]


def test_counts_are_whole_where_examples_are_cut() -> None:
    found = _examine([_encoded(_photo(0))] * 30, [f"class {i:02d}" for i in range(30)])
    assert (found.n_exact_duplicates, len(found.exact_duplicates)) == (29, 20)
    assert (found.n_conflicting_labels, len(found.conflicting_labels)) == (29, 20)
    assert (found.n_single_image_labels, len(found.single_image_labels)) == (30, 20)


def test_items_without_images_have_exact_duplicates_alone() -> None:
    neighbors = np.array([[1, 2], [0, 2], [0, 1]], np.int32)
    found = examine(
        ids=["a", "b", "c"],
        labels=["x", "y", "x"],
        contents=[b"1", b"1", b"2"],
        signatures=None,
        neighbor_ids=neighbors,
        neighbor_similarities=np.ones((3, 2), np.float32),
    )
    assert (found.exact_duplicates, found.near_duplicates) == ([("a", "b")], [])
    assert found.conflicting_labels == [("a", "b")]


@given(
    picture=st.lists(st.integers(0, 3), min_size=1, max_size=10),
    saved_as=st.lists(st.sampled_from(["PNG", "BMP"]), min_size=10, max_size=10),
)
def test_duplicates_equal_a_comparison_of_all_pairs(picture: list[int], saved_as: list[str]) -> None:
    """PNG and BMP hold the same pixels in different bytes: the same picture as another file."""
    keys = list(zip(picture, saved_as, strict=False))
    found = _examine([_encoded(_photo(seed), kind) for seed, kind in keys])
    pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]]
    assert found.n_exact_duplicates == len(keys) - len(set(keys))
    assert found.n_near_duplicates == sum(a[0] == b[0] and a != b for a, b in pairs)


@pytest.mark.parametrize("n", [0, 1])
def test_pairs_without_a_picture_are_told_by_their_embeddings(n: int) -> None:
    drawn = np.random.default_rng(0).integers(1, 255, (2, 768), np.uint8)
    seen, other, none = drawn[:1], drawn[1:], np.zeros((1, 768), np.uint8)
    pictured = [(0.91, seen, True), (0.89, seen, False), (0.9999, other, False)]
    for cosine, second, expected in [*pictured, (0.9999, none, True), (0.99, none, False)]:
        found = are_near_equal(np.array([cosine])[:n], seen[:n], second[:n])
        assert found.tolist() == [expected][:n]
