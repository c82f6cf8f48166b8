"""Sample: images that a head is learnt on, that int8 is calibrated on and forms compared on; their speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import Preprocessing
from vicinal.models.decoding import accepted_formats, image_suffixes
from vicinal.models.embedder import Embedder
from vicinal.models.errors import DatasetError
from vicinal.models.images.hidden_files import hidden_part
from vicinal.training.datasets.files import ImageFolder, LabelledFile, ReadImage, decoded
from vicinal.training.datasets.labelled import ImageListing
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig

Item = TypeVar("Item")

# More change a projection or a rate by less than one folder differs from another.
_MOST = 2000
# A catalog that neither the demo nor a recipe draws.
_DRAWN = DemoCatalogConfig(kind="demo_catalog", seeds=(7001,), products=50, views=2)

# Images at a time, and times that each speed is taken.
_BATCH = 16
_ROUNDS = 5
_SINGLES = 5


@dataclass(frozen=True)
class Sample:
    """Images to try a network on: labelled, so that searches can be judged, or not."""

    listing: ImageListing
    is_labelled: bool = False

    def prepared(self, preprocessing: Preprocessing, most: int = 100) -> list[FloatArray]:
        """At most so many of the images, evenly over all of them, as arrays (3, S, S)."""
        with self.listing.open() as read:
            images = (_decoded(read, file) for file in _evenly(self.listing.files, most))
            return [preprocessing.to_tensor(image) for image in images]

    def features(self, embedder: Embedder) -> FloatArray:
        """Features of all images: (n, d) float32, not normalized."""
        # A GPU may take fewer at a time from some batch on.
        parts, size = [], embedder.batch_size
        with self.listing.open() as read:
            for start in range(0, len(self.listing), size):
                batch = self.listing.files[start : start + size]
                parts.append(embedder.infer([embedder.prepare(_decoded(read, file)) for file in batch]))
        return np.concatenate(parts)


def folder_sample(folder: Path) -> Sample:
    """Take at most 2,000 images below a folder, evenly by path.

    They count as labelled where each lies in a subfolder and some subfolder has two or more.
    """
    if not folder.is_dir():
        raise DatasetError(f"there is no folder '{folder}'")
    found = sorted(
        one.relative_to(folder) for one in folder.rglob("*") if one.suffix.lower() in image_suffixes()
    )
    paths = [one for one in found if not hidden_part(one.as_posix())]
    if not paths:
        raise DatasetError(f"'{folder}' holds no images ({', '.join(accepted_formats())})")
    files = tuple(
        LabelledFile(path.as_posix(), path.parent.as_posix() if path.parent.parts else "")
        for path in _evenly(paths, _MOST)
    )
    labels = {file.label for file in files}
    is_labelled = "" not in labels and 1 < len(labels) < len(files)
    return Sample(ImageListing(folder.name, files, ImageFolder(root=folder).open), is_labelled)


def drawn_sample() -> Sample:
    """100 pictures of products that the demo catalog draws, for want of photos."""
    return Sample(ImageListing(_DRAWN.name, tuple(_DRAWN.rows()), _DRAWN.open))


def _decoded(read: ReadImage, file: LabelledFile) -> Image.Image:
    return decoded(read(file), f"image '{file.path}'")


def _evenly(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most so many of the items, in their order."""
    if len(items) <= most:
        return items
    return [items[round(position)] for position in np.linspace(0, len(items) - 1, most)]


def measure_speed(embedders: Mapping[str, Embedder]) -> dict[str, dict[str, float]]:
    """Measure how long embedding takes without decoding, on all the threads that the embedders were given.

    Gives by name `images_per_second` at batches of 16, and `milliseconds` for an image alone. The networks
    take turns, and the fastest turn counts: what else the machine does slows some turns down, and never makes
    one faster.
    """
    runs = {}
    for name, embedder in embedders.items():
        side = embedder.bundle.preprocessing.input_size
        image = np.random.default_rng(0).normal(size=(3, side, side)).astype(np.float32)
        runs[name, _BATCH] = lambda embedder=embedder, image=image: embedder.infer([image] * _BATCH)
        runs[name, 1] = lambda embedder=embedder, image=image: embedder.infer([image])
    best = {key: float("inf") for key in runs}
    for turn in range(_ROUNDS + 1):
        for key, run in runs.items():
            seconds = min(_seconds(run) for _ in range(_SINGLES if key[1] == 1 else 1))
            # The first turn finds memory, and counts for nothing.
            best[key] = min(best[key], seconds) if turn else float("inf")
    return {
        name: {
            "images_per_second": round(_BATCH / best[name, _BATCH], 1),
            "milliseconds": round(1e3 * best[name, 1], 2),
        }
        for name in embedders
    }


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
