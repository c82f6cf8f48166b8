"""Fixtures of the evaluation: an embedder that runs, and images that it tells apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder


def make_picture(label: int, view: int) -> Image.Image:
    """A smooth picture of one label; views differ by noise that leaves it recognizable."""
    coarse = np.random.default_rng(label).integers(30, 226, (5, 5, 3))
    noise = np.random.default_rng([label, view]).integers(-25, 26, (5, 5, 3))
    return Image.fromarray((coarse + noise).astype(np.uint8)).resize((40, 40), Image.Resampling.BICUBIC)


@pytest.fixture(scope="session")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1)


@pytest.fixture(scope="session")
def write_pictures() -> Callable[[Path, dict[str, tuple[int, int]]], None]:
    """Writes pictures of a label and view by their paths below a folder."""

    def write(root: Path, pictures: dict[str, tuple[int, int]]) -> None:
        for name, (label, view) in pictures.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            make_picture(label, view).save(path)

    return write
