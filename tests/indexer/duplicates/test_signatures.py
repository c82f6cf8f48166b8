"""Signatures: turned and cut pictures are those that Pillow would make."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.photos import draw_photo
from vicinal.indexer.duplicates.signatures import (
    BOXES,
    ORIENTATIONS,
    oriented,
    turned_signatures,
    undone,
    unit_boxes,
)
from vicinal.indexer.jobs.preparation import make_signature

SIX = (6, 6)


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    turns, is_mirrored = ORIENTATIONS[orientation]
    if is_mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image.rotate(90 * turns, expand=True)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Color by color, the slow way."""
    colors = [one.reshape(-1, 3).astype(np.float64) for one in (first, second)]
    a, b = (one - one.mean(axis=0) for one in colors)
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


@pytest.mark.parametrize("orientation", range(8))
def test_a_turned_picture_is_what_pillow_makes_of_it(orientation: int) -> None:
    image = draw_photo(0, (40, 40))
    found = oriented(np.asarray(image), orientation)
    assert np.array_equal(found, np.asarray(_turned(image, orientation)))


@given(orientation=st.integers(0, 7), seed=st.integers(0, 99))
def test_a_turn_and_its_undoing_leave_a_picture_as_it_was(orientation: int, seed: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 256, (5, 5, 3))
    assert np.array_equal(oriented(oriented(picture, orientation), undone(orientation)), picture)


def test_the_product_of_whole_pictures_is_their_correlation() -> None:
    images = [draw_photo(seed) for seed in (1, 2)]
    signatures = np.stack([make_signature(one) for one in images])
    whole = unit_boxes(signatures, BOXES[:1])[:, 0]
    small = [
        np.asarray(Image.fromarray(one.reshape(16, 16, 3)).resize(SIX, Image.Resampling.BOX))
        for one in signatures
    ]
    # Pillow rounds to whole numbers.
    assert whole[0] @ whole[1] == pytest.approx(_correlation(*small), abs=5e-3)
    assert np.linalg.norm(whole, axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("orientation", range(8))
def test_the_signature_of_a_turned_picture_is_found_among_the_turned_ones(orientation: int) -> None:
    image = draw_photo(3, (64, 64))
    turned = turned_signatures(make_signature(image)[None])[0]
    own = turned_signatures(make_signature(_turned(image, orientation))[None])[0, 0]
    assert (turned @ own).argmax() == orientation


@pytest.mark.parametrize("box", range(1, len(BOXES)))
def test_a_crop_is_most_like_its_own_box(box: int) -> None:
    left, top, side = 160.0 * BOXES[box]
    image = draw_photo(4, (160, 160))
    crop = image.crop((round(left), round(top), round(left + side), round(top + side)))
    cuts = unit_boxes(make_signature(image)[None])[0]
    own = turned_signatures(make_signature(crop)[None])[0, 0]
    assert (cuts @ own).argmax() == box


def test_blank_pictures_are_like_nothing() -> None:
    blank = np.full((1, 768), 200, np.uint8)
    assert not unit_boxes(blank).any()
    assert not turned_signatures(blank).any()
