"""Drawn photos: pictures with large and small things, no two of them alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.indexer.duplicates.made_copies import CHANGES, make_copy


def draw_photo(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """A picture with structure at several scales, as photos have it."""
    rng = np.random.default_rng([seed, 77])
    pixels = np.zeros((size[1], size[0], 3))
    for cells, strength in ((3, 1.0), (8, 0.7), (20, 0.4)):
        coarse = rng.integers(0, 256, (cells, cells, 3)).astype(np.uint8)
        pixels += strength * np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))
    return Image.fromarray((pixels / 2.1).clip(0, 255).astype(np.uint8))


def write_album(folder: Path, n_photos: int = 40, seed: int = 0) -> dict[str, str]:
    """Write photos, and for each of them one copy: of every fourth the same bytes, else a changed one.

    Returns:
        The name of the photo of each copy.
    """
    rng = np.random.default_rng(seed)
    origin = {}
    folder.mkdir(parents=True)
    for number in range(n_photos):
        photo, name = draw_photo(1000 * seed + number), f"photo {number:02}.jpg"
        photo.save(folder / name, quality=95)
        change = CHANGES[number % len(CHANGES)]
        copy = (folder / name).read_bytes() if number % 4 == 0 else make_copy(photo, change, rng)
        kind = "exact" if number % 4 == 0 else change
        origin[f"x copy {number:02} {kind}.jpg"] = name
        (folder / f"x copy {number:02} {kind}.jpg").write_bytes(copy)
    return origin
