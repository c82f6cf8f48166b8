"""Small pictures: smooth ones that a network and a JPEG keep apart, and the bytes of plain ones."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["picture", "write_picture"]


def write_picture(path: Path, seed: int = 0, size: tuple[int, int] = (40, 32)) -> Path:
    """A smooth random picture in the format that the suffix names; its folder is made as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 5, 3)).astype(np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def picture(seed: int = 0) -> bytes:
    """A PNG of one color."""
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (seed, 90, 120)).save(stream, "PNG")
    return stream.getvalue()
