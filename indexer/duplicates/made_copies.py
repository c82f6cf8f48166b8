"""Made copies: what people and programs do to photos, to see how surely it is noticed."""

from __future__ import annotations

import io
from typing import Literal, get_args

import numpy as np
from PIL import Image

Change = Literal["resized", "recompressed", "cropped", "rotated", "mirrored", "mixed"]
CHANGES: tuple[Change, ...] = get_args(Change)
_MIXED: tuple[Change, ...] = ("resized", "cropped", "rotated", "mirrored")
_TURNS = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
_SIDES = (0.3, 0.7)
_AREAS = (0.6, 0.9)
_QUALITIES = (30, 70)
_USUAL_QUALITY = 85
# How much a crop may change the aspect ratio: by this factor at most.
_MOST_ASPECT = 1.28
_LEAST_SIDE = 8


def make_copy(image: Image.Image, change: Change, rng: np.random.Generator) -> bytes:
    """A changed copy of a picture, as JPEG.

    `resized` scales the sides to 30 to 70 %; `recompressed` saves with a quality of 30 to 70; `cropped`
    leaves 60 to 90 % of the area; `rotated` makes quarter turns; `mirrored` swaps left and right; `mixed`
    does each of the others with a probability of one half, and always recompresses.
    """
    drawn = [one for one in _MIXED if rng.random() < 0.5] if change == "mixed" else [change]
    if "cropped" in drawn:
        image = _cropped(image, rng)
    if "rotated" in drawn:
        image = image.transpose(_TURNS[rng.integers(len(_TURNS))])
    if "mirrored" in drawn:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if "resized" in drawn:
        scale = rng.uniform(*_SIDES)
        size = (max(_LEAST_SIDE, round(scale * image.width)), max(_LEAST_SIDE, round(scale * image.height)))
        image = image.resize(size, Image.Resampling.BICUBIC)
    is_pressed = change in ("recompressed", "mixed")
    quality = int(rng.integers(_QUALITIES[0], _QUALITIES[1] + 1)) if is_pressed else _USUAL_QUALITY
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _cropped(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    area = rng.uniform(*_AREAS)
    aspect = np.exp(rng.uniform(-1.0, 1.0) * np.log(min(_MOST_ASPECT, 1.0 / area)))
    width, height = np.sqrt(area * aspect), np.sqrt(area / aspect)
    left, top = rng.uniform(0.0, 1.0 - width), rng.uniform(0.0, 1.0 - height)
    box = np.array([left, top, left + width, top + height]) * np.tile(image.size, 2)
    return image.crop(tuple(box.round().astype(int).tolist()))
