"""Made copies: each change does what its name says, within its limits."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tests.photos import draw_photo
from vicinal.indexer.duplicates.made_copies import Change, make_copy

PHOTO = draw_photo(1, (400, 300))


def _copies(change: Change, n: int = 40) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.open(io.BytesIO(make_copy(PHOTO, change, rng))) for _ in range(n)]


def test_resized_copies_have_30_to_70_percent_of_the_sides() -> None:
    widths = [one.width / 400 for one in _copies("resized")]
    assert 0.295 <= min(widths) < 0.4 < 0.6 < max(widths) <= 0.705


def test_cropped_copies_have_60_to_90_percent_of_the_area() -> None:
    areas = [one.width * one.height / (400 * 300) for one in _copies("cropped")]
    assert 0.59 <= min(areas) < 0.7 < 0.8 < max(areas) <= 0.91
