"""Registration: crops are laid where they were cut out, and copies are told from look-alikes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.photos import draw_photo
from vicinal.indexer.duplicates.registration import Warps, align, likeness

SIDE = 48


def _pixels(*images: Image.Image) -> np.ndarray:
    return np.stack(
        [np.asarray(one.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) for one in images]
    )


def _whole(m: int = 1) -> Warps:
    return Warps.onto(np.tile(np.float32([0.0, 0.0, 1.0]), (m, 1)))


def _cropped(image: Image.Image, left: float, top: float, side: float) -> Image.Image:
    edges = np.array([left, top, left + side, top + side]) * np.tile(image.size, 2)
    return image.crop(tuple(edges.round().astype(int).tolist()))


@pytest.mark.parametrize(("left", "top", "side"), [(0.1, 0.05, 0.85), (0.2, 0.25, 0.75), (0.0, 0.12, 0.8)])
def test_a_crop_is_laid_where_it_was_cut_out(left: float, top: float, side: float) -> None:
    image = draw_photo(0, (200, 200))
    crop = _cropped(image, left, top, side)
    start = Warps.onto(np.float32([[left + 0.03, top - 0.03, side + 0.02]]))
    warps, correlations = align(_pixels(crop), _pixels(image), start, 12)
    assert warps.matrices[0] == pytest.approx(side * np.eye(2), abs=0.01)
    assert warps.shifts[0] == pytest.approx([2 * left + side - 1, 2 * top + side - 1], abs=0.01)
    assert warps.areas[0] == pytest.approx(side**2, abs=0.02)
    assert correlations[0] > 0.99


def test_pairs_are_aligned_alone_as_in_a_batch() -> None:
    images = [draw_photo(seed) for seed in range(4)]
    crops = [_cropped(one, 0.05, 0.05, 0.9) for one in images]
    together = align(_pixels(*crops), _pixels(*images), _whole(4), 8)[1]
    alone = [align(_pixels(a), _pixels(b), _whole(), 8)[1][0] for a, b in zip(crops, images, strict=True)]
    assert together == pytest.approx(alone, abs=1e-4)


def test_a_thing_that_moved_tells_two_photos_of_a_scene_apart() -> None:
    """One of 16 blocks shows something else: the correlation of the whole hardly notices."""
    first, second = draw_photo(0), draw_photo(0)
    second.paste(draw_photo(9).crop((0, 0, 40, 30)), (0, 0))
    a, b = _pixels(first), _pixels(second)
    centered = [one - one.mean(axis=(1, 2)) for one in (a, b)]
    whole = (centered[0] * centered[1]).sum() / np.prod([np.linalg.norm(one) for one in centered])
    assert whole > 0.85
    assert likeness(a, b, _whole())[0] < 0.5


def test_blank_pictures_are_no_copies_of_each_other() -> None:
    white, gray = (np.full((1, SIDE, SIDE, 3), value, np.float32) for value in (255, 90))
    assert likeness(white, gray, _whole())[0] == pytest.approx(0.0, abs=1e-3)


def test_what_lies_outside_of_the_outer_picture_is_no_copy() -> None:
    pixels = _pixels(draw_photo(0))
    beside = Warps.onto(np.float32([[0.3, 0.0, 1.0]]))
    assert likeness(pixels, pixels, beside)[0] == 0.0
