"""Images of a color of their own, to list in data sets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from PIL import Image


def _write_images(root: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        color = tuple(zlib.crc32(path.encode()).to_bytes(4)[:3])
        Image.new("RGB", (24, 20), color).save(root / path, "PNG")


@pytest.fixture
def write_images() -> Callable[[Path, Iterable[str]], None]:
    """Writes an image for each path below a folder."""
    return _write_images
